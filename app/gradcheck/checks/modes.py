"""Modes and devices: eager, graph, xla and v1, and every GPU, give the same values and gradients.

At special points, such as 0 and ties, a compiler that simplifies may lose a NaN or choose another subgradient.
"""

from collections.abc import Iterator

from app.errors import Unprocessable
from app.gradcheck.agreement import agree
from app.gradcheck.outside import NOTE, noted
from app.gradcheck.sample import Sample
from app.gradcheck.target import Target
from ops import Mode
from pullback.gradcheck.verdict import Finding, Place

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
    special = [sample for sample in target.special_samples if sample.is_computable]
    if mode == "eager":
        # Nothing simplifies there, and a loop is one of Python, which takes seconds.
        special = [sample for sample in special if not sample.has_loop]
    samples = [*target.subsamples, *(() if target.op.sample else special)]
    others = special if target.op.sample else []
    if mode == "xla":
        # XLA compiles for every shape: that of the random points, which most special ones share, is enough.
        last = target.subsamples[-1]
        samples, others = (
            [sample for sample in each if sample.is_elementwise or _shape(sample) == _shape(last)]
            for each in (samples, others)
        )

    def compare(some: list[Sample]) -> Iterator[Finding]:
        pairs = ((sample.in_mode(mode, device).values, sample) for sample in some)
        return agree(target, place, pairs, what, "mode graph", device=device)

    try:
        yield from compare(samples)
        yield from (finding for finding in noted(target, compare(others)) if NOTE in finding.sentence)
    except Unprocessable as error:
        if error.entries[0].loc != ("mode",):
            raise
        others = ", ".join(f'"{other}"' for other in target.op.modes if other != mode)
        yield Finding(place, "fail", f"{error.entries[0].message}; declare modes=({others}), or mend the op")


def _shape(sample: Sample) -> tuple[tuple[int, ...], ...]:
    return tuple(x.shape for x in sample.point.inputs.values())
