"""Modes and devices: eager, graph, xla and v1, and every GPU, give the same values and gradients.

At special points, such as 0 and ties, a compiler that simplifies may lose a NaN or choose another subgradient.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np

from app.autodiff import draws
from app.autodiff.binding import moved
from app.autodiff.padded_rows import axes_of_rows
from app.errors import OpFailed, Unprocessable
from app.gradcheck.agreement import agree
from app.gradcheck.company import FIXED
from app.gradcheck.outside import NOTE, noted
from app.gradcheck.reference import has_reference
from app.gradcheck.sample import Sample, sample_at
from app.gradcheck.target import Target
from app.runtime.modes import Key
from ops import Array, Mode
from pullback.gradcheck.verdict import Finding, Subject

NAME = "modes"
RANKS = ((), (2, 3))


def check(target: Target) -> Iterator[Finding]:
    """Compare every mode, and every device, with mode graph on the first device."""
    for mode in target.modes:
        if mode != "graph":
            yield from _compare(target, mode, target.options.device, f"mode {mode}")
    for name, device in list(target.options.devices.items())[1:]:
        yield from _compare(target, "graph", device, name)


def _compare(target: Target, mode: Mode, device: str, what: str) -> Iterator[Finding]:
    subject, rows = Subject(NAME, mode=mode, dtype=target.widest), 0
    # Of a model in half precision inside, units stand at their kinks there, and modes round to either side of these.
    is_half = target.samples[0].inner_dtype != target.widest
    special = [] if is_half else [sample for sample in target.special_samples if sample.is_computable]
    if mode == "eager":
        # Nothing simplifies there, and a loop is one of Python, which takes seconds.
        special = [sample for sample in special if not sample.has_loop]
        special += _of_other_ranks(target)
    samples = [*target.subsamples, *(() if target.op.sample else special)]
    others = special if target.op.sample else []
    if mode == "xla":
        # XLA compiles for every shape: that of the random points, which most special ones share, is enough.
        last, rows = target.subsamples[-1], _rows(target)
        if rows and target.op.sample is not None:
            last = max(target.subsamples, key=lambda sample: sample.point.size)
        samples, others = (
            [sample for sample in each if sample.is_elementwise or _shape(sample, rows) == _shape(last, rows)]
            for each in (samples, others)
        )

    def compare(some: list[Sample]) -> Iterator[Finding]:
        pairs = ((_values(sample, sample.in_mode(mode, device), rows), sample) for sample in some)
        return agree(target, subject, pairs, what, "mode graph", device=device)

    try:
        yield from compare(samples)
        yield from (finding for finding in noted(target, compare(others)) if NOTE in finding.sentence)
    except Unprocessable as error:
        if error.entries[0].loc != ("mode",):
            raise
        others = ", ".join(f'"{other}"' for other in target.op.modes if other != mode)
        yield Finding(subject, "fail", f"{error.entries[0].message}; declare modes=({others}), or mend the op")


def _of_other_ranks(target: Target) -> list[Sample]:
    """Return samples without axes for ``...``, and with two: in eager mode, Python may branch on the rank.

    A graph does not know it. Check sizes looks at elementwise ops in every rank.
    """
    op, found = target.op, list[Sample]()
    if target.batching == "elementwise" or target.inputs is not None or op.sample is not None:
        return found
    rng = target.rng("ranks")
    for axes in RANKS if any("..." in slot.shape for slot in op.inputs) else ():
        with suppress(OpFailed, Unprocessable):
            inputs = draws.draw_from_domains(op, target.widest, rng, {"...": axes})
            sample = sample_at(target.bind(inputs, target.widest), rng, target.magnitudes, last=target.last)
            if has_reference(sample.point) and sample.is_computable and not sample.has_loop:
                found.append(sample)
    return found


def _rows(target: Target) -> int:
    """Return how many rows XLA gets, among which are those of each sample; 0: as many as the sample has.

    The rows of an elementwise op are numbers. For those of others, check batching has compiled already.
    """
    if target.batching == "none" or (target.op.shared and not target.samples[0].claim.linear):
        return 0
    return max(map(_count, target.subsamples)) if target.batching == "elementwise" else FIXED


def _values(sample: Sample, other: Sample, rows: int) -> Mapping[Key, Array]:
    """Return the values of ``other``, the sample in another mode, at the first of ``rows`` rows, which repeat them.

    Rows are independent, so the values are those that they have alone.
    """
    count, shared = _count(sample), sample.point.op.shared
    if not 0 < count < rows:
        return other.values
    order = np.arange(rows) % count
    inputs, dys, vectors = (
        {name: x if name in shared else _in_one_axis(sample, x)[order] for name, x in named.items()}
        for named in (sample.point.inputs, sample.cotangents, sample.vectors)
    )
    if shared:
        # Their cotangents are sums over the rows, to which the others must add nothing.
        dys = {name: np.concatenate([dy[:count], np.zeros_like(dy[count:])]) for name, dy in dys.items()}
    found = replace(other, point=moved(other.point, inputs), cotangents=dys, vectors=vectors).values
    return {key: y if key[1] in shared else y[:count].reshape(sample.values[key].shape) for key, y in found.items()}


def _count(sample: Sample) -> int:
    """Return how many rows a sample has."""
    return len(_in_one_axis(sample, next(iter(sample.cotangents.values()))))


def _in_one_axis(sample: Sample, x: Array) -> Array:
    """Return an array with its rows in one axis."""
    return x.ravel() if sample.is_elementwise else x.reshape(-1, *x.shape[axes_of_rows(sample.point) :])


def _shape(sample: Sample, rows: int) -> tuple[tuple[int, ...], ...]:
    """Return the shapes of the inputs; without those of rows, if XLA gets as many of each sample."""
    axes, shared = axes_of_rows(sample.point) if rows else 0, sample.point.op.shared
    return tuple(x.shape if name in shared else x.shape[axes:] for name, x in sample.point.inputs.items())
