"""Modes and devices: eager, graph, xla and v1 give the same values and gradients, and so does every GPU."""

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
            yield from _compared(target, mode, target.device, f"mode {mode}")
    for name, device in list(target.options.devices.items())[1:]:
        yield from _compared(target, "graph", device, name)


def _compared(target: Target, mode: Mode, device: str, what: str) -> Iterator[Finding]:
    place = Place(NAME, mode=mode, dtype=target.widest)
    # XLA compiles for every shape: one sample tells what there is to tell.
    samples = target.subsamples[:1] if mode == "xla" else target.subsamples
    try:
        pairs = [(sample.moved(mode, device).values, sample) for sample in samples]
    except Overloaded as error:
        yield Finding(place, "skipped", error.detail)
        return
    yield from agree(target, place, pairs, what, "mode graph")
