"""Numbers of an elementwise op in other shapes: as scalars, in three axes, in none at all, and in long arrays.

The other checks evaluate the op's numbers in one dimension, and the service pads them to a few lengths. In any other
shape the same numbers have the same results, so no derivative is needed.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from app.autodiff.binding import moved
from app.autodiff.derivatives import values_up_to
from app.errors import OpFailed, Unprocessable
from app.gradcheck.agreement import NAMES, ORDERS
from app.gradcheck.reproduce import Call, Calls
from app.gradcheck.sample import Sample
from app.gradcheck.sizes import BLOCKS
from app.gradcheck.target import Target
from ops import Array, Mode
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.verdict import Finding, Subject

Shape: TypeAlias = tuple[int, ...]
SMALL: tuple[Shape, ...] = ((), (1,), (5,), (64,), (65,), (1, 1, 1), (0,), (2, 0, 3))
UNEVEN = (2, 3, 5)
# Vectors and batches of the sizes around those of blocks.
OF_BLOCKS: tuple[Shape, ...] = tuple(shape for n in itertools.chain(*BLOCKS) for shape in ((n,), (n, 2)))
# Kernels share the work of long arrays among threads.
LONG: tuple[Shape, ...] = ((4097,), ((1 << 17) + 1,))
NAME = "sizes"
# XLA compiles for every shape.
MODES: tuple[Mode, ...] = ("eager", "graph")
PADDED = (
    "no operation returns this number: the service pads the numbers of an elementwise op in mode graph; "
    "call the op in TensorFlow"
)


def findings(target: Target, subject: Subject) -> Iterator[Finding]:
    """Compare the values in many shapes with those of the same numbers in one dimension, order by order."""
    sample, rng = target.subsamples[0], target.rng("shapes")
    shapes = [*SMALL, *OF_BLOCKS, tuple(int(n) for n in rng.permutation(UNEVEN))]
    modes: list[Mode] = [mode for mode in MODES if mode in target.modes or mode == "graph"]
    # Check modes compares the modes.
    in_line = {mode: sample if mode == "graph" else sample.in_mode(mode, target.options.device) for mode in modes}
    long = [shape for shape in LONG if math.prod(shape) <= target.options.max_elements]
    runs = [*itertools.product(shapes, modes), *itertools.product(long, modes[-1:])]
    size = next(iter(sample.point.inputs.values())).size
    if not size:
        yield Finding(subject, "skipped", "the points have no numbers")
        return
    by_order = {order: list[tuple[Shape, Comparison]]() for order in (0, *target.orders)}
    for shape, mode in runs:
        target.checkpoint()
        at = (rng.integers(size) + np.arange(math.prod(shape))) % size
        try:
            compared = _compare(target, sample, in_line[mode], shape, at)
        except Unprocessable:
            continue
        except OpFailed as error:
            yield Finding(replace(subject, mode=mode), "fail", f"in shape {list(shape)}: {error.located}", 1)
            return
        for order, comparison in compared.items():
            by_order[order].append((shape, comparison))
    for order, compared in by_order.items():
        yield _finding(replace(subject, order=order), compared)


def _compare(target: Target, sample: Sample, in_line: Sample, shape: Shape, at: Array) -> dict[int, Comparison]:
    """Compare the values of the numbers ``at`` some positions in a shape, by order.

    ``in_line`` is the sample in the mode of the comparison, whose bounds are those of the sample.
    """
    mode = in_line.point.spec.mode
    inputs, dys, vectors = (
        {name: x.ravel()[at].reshape(shape) for name, x in named.items()}
        for named in (sample.point.inputs, sample.cotangents, sample.vectors)
    )
    point = moved(in_line.point, inputs)
    values = values_up_to(sample.last, point, dys, vectors).run_unpadded()
    subject, call = Subject(NAME, mode=mode, dtype=target.widest), Call(point, ("", ""), dys, vectors, needs_all=True)
    found = {
        order: Comparison(replace(subject, order=order), target.options.tolerances) for order in (0, *target.orders)
    }
    for key, value in values.items():
        if (comparison := found.get(ORDERS[str(key[0])])) is not None:
            is_whole, expected = value.dtype.kind in "iub", np.ravel(in_line.values[key])[at].reshape(shape)
            bound = np.zeros(()) if is_whole else np.ravel(sample.error_bound(key, target.widest))[at].reshape(shape)
            one = replace(call, key=key, explanation=PADDED if mode == "graph" else "")
            # Both values round.
            comparison.add(value, expected, 2 * bound, key=key, calls=_at(one))
    return found


def _at(call: Call) -> Calls:
    return lambda i: replace(call, position=i)


def _finding(subject: Subject, compared: Sequence[tuple[Shape, Comparison]]) -> Finding:
    what, against = NAMES[subject.order or 0], "that of the same numbers in one dimension"
    for shape, comparison in compared:
        # The first shape is the smallest, which is the easiest to reproduce.
        if comparison.wrong:
            found = comparison.finding(what, against)
            return replace(found, sentence=f"in shape {list(shape)}: {found.sentence}")
    points = sum(comparison.points for _, comparison in compared)
    if not points:
        return Finding(subject, "skipped", f"{what}: nothing to compare")
    shapes = len(dict(compared))
    return Finding(subject, "pass", f"{what} agrees with {against} in {shapes} shapes", points)
