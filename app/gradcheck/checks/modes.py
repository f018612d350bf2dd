"""Modes and devices: eager, graph, xla and v1, and every GPU, give the same values and gradients."""

from collections.abc import Iterator

from app.errors import Overloaded
from app.gradcheck.agreement import agree
from app.gradcheck.target import Target
from app.gradcheck.verdict import Finding, Place
from ops import Mode

NAME = "modes"


def check(target: Target) -> Iterator[Finding]:
    """Compare every mode, and every device, with mode graph on the first device."""
    for mode in target.modes:
        if mode != "graph":
            yield from _compare(target, mode, target.device, f"mode {mode}")
    for name, device in list(target.options.devices.items())[1:]:
        yield from _compare(target, "graph", device, name)


def _compare(target: Target, mode: Mode, device: str, what: str) -> Iterator[Finding]:
    place = Place(NAME, mode=mode, dtype=target.widest)
    # XLA compiles for every shape, so one sample is enough.
    samples = target.subsamples[:1] if mode == "xla" else target.subsamples
    try:
        pairs = [(sample.in_mode(mode, device).values, sample) for sample in samples]
    except Overloaded as error:
        yield Finding(place, "skipped", error.detail)
        return
    yield from agree(target, place, pairs, what, "mode graph", device=device)
