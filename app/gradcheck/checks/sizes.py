"""Sizes: values and derivatives are right at one number, at 64 and 65, without axes, with three, and at those between.

An elementwise op gives the same numbers in every shape. At each size of any other op, a quick look compares the values
with the reference, and both orders along one direction; what looks wrong is then checked like other points.
"""

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from app.autodiff.binding import moved
from app.autodiff.derivatives import values_of, values_up_to
from app.autodiff.point import Point
from app.autodiff.programs import Program
from app.errors import OpFailed, Unprocessable
from app.gradcheck import sizes
from app.gradcheck.agreement import NAMES, ORDERS
from app.gradcheck.checks import contract, quick_look
from app.gradcheck.reference import has_reference
from app.gradcheck.reproduce import Call, Calls
from app.gradcheck.sample import Sample, sample_at
from app.gradcheck.sizes import BLOCKS, Sized
from app.gradcheck.target import Target
from app.runtime import modes
from ops import Array, Mode, Op, OpFault
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.verdict import Finding, Subject

NAME = "sizes"
CURE = "mend the op, or refuse the size in validate"
# The sizes that are checked with care at each order.
MAX_SUSPECTS = 6
# The most that forward may take, as the least of several runs, for a longer axis.
MOST_S, RUNS = 2e-3, 3
Shape: TypeAlias = tuple[int, ...]
SMALL: tuple[Shape, ...] = ((), (1,), (5,), (64,), (65,), (1, 1, 1), (0,), (2, 0, 3))
UNEVEN = (2, 3, 5)
# Vectors and batches of the sizes around those of blocks.
OF_BLOCKS: tuple[Shape, ...] = tuple(shape for n in itertools.chain(*BLOCKS) for shape in ((n,), (n, 2)))
# Kernels share the work of long arrays among threads.
LONG: tuple[Shape, ...] = ((4097,), ((1 << 17) + 1,))
# XLA compiles for every shape.
MODES: tuple[Mode, ...] = ("eager", "graph")
PADDED = (
    "no operation returns this number: the service pads the numbers of an elementwise op in mode graph; "
    "call the op in TensorFlow"
)


@dataclass(frozen=True)
class _Look:
    """A sample of some sizes, and how wrong each order looks: above 1, it does; NaN where there is no number."""

    sizes: str
    sample: Sample
    ratios: dict[int, float]


def check(target: Target) -> Iterator[Finding]:
    """Check an op at drawn points of many sizes, at all orders."""
    subject = Subject(NAME, dtype=target.widest)
    if target.inputs is not None:
        yield Finding(subject, "skipped", "the inputs are given, and so are their sizes")
        return
    if target.batching == "elementwise":
        yield from checked_shapes(target, subject)
        return
    looks, faults = list[_Look](), list[tuple[int, Finding]]()
    for sized in _points(target):
        target.checkpoint()
        found = _look(target, sized, subject)
        if isinstance(found, Finding):
            faults.append((sized.point.size, found))
        elif found is not None:
            looks.append(found)
    if faults:
        # The smallest size that fails is the easiest to mend.
        yield min(faults, key=lambda fault: (fault[1].verdict != "fail", fault[0]))[1]
    elif not looks:
        yield Finding(subject, "skipped", _why_none(target.op))
    for order in (0, *target.orders):
        if found := _finding(target, replace(subject, order=order), looks):
            yield found


def _why_none(op: Op) -> str:
    if not any(isinstance(size, str) for slot in op.inputs for size in slot.shape):
        return "all sizes are fixed"
    if op.sample is not None:
        return "its own sample draws points of one size; let it draw several"
    return "it accepts no other sizes"


def _points(target: Target) -> Iterator[Sized]:
    yield from sizes.points(target)
    is_bounded = modes.is_known_bounded(_program(target.samples[-1]), "graph")
    for lengths in (*sizes.BLOCKS, *((length,) for length in sizes.LONG if is_bounded)):
        longest_s = 0.0
        for sized in sizes.long_points(target, lengths):
            yield sized
            longest_s = max(longest_s, _least_s(sized.point))
        # An op that forms a matrix takes the square of a long axis, or its cube.
        if longest_s > MOST_S:
            return


def _program(sample: Sample) -> Program:
    return values_up_to(sample.last, sample.point, sample.cotangents, sample.vectors).program


def _least_s(point: Point) -> float:
    times = list[float]()
    with suppress(OpFailed, Unprocessable):
        for _ in range(RUNS):
            began = time.perf_counter()
            _ = values_of(point).run()
            times.append(time.perf_counter() - began)
    return min(times, default=math.inf)


def _look(target: Target, sized: Sized, subject: Subject) -> _Look | Finding | None:
    """Look at a point. Return ``None`` if the op rejects it, and a finding if it breaks its contract there."""
    order, rng = 0, np.random.default_rng([target.options.seed, 2])
    try:
        _ = values_of(sized.point).run()
        sample = sample_at(sized.point, rng, target.magnitudes, last=target.last)
        if not has_reference(sized.point) or sample.is_singular:
            return None
        if failure := contract.failure(sample, 2 if target.last == "products" else 1):
            order, error = failure
            raise error
    except Unprocessable:
        return None
    except OpFailed as error:
        # A kernel that fails in forward refuses the size in its way; outputs of another shape are a fault.
        if not order and not isinstance(error.__cause__, OpFault):
            return None
        # Some kernels of TensorFlow's own gradients fail without numbers: nobody may ever ask for that.
        verdict = "fail" if not order or all(x.size for x in sized.point.inputs.values()) else "skipped"
        return Finding(replace(subject, order=order), verdict, f"at {sized.sizes}: {error.located}; {CURE}", 1)
    ratios = {order: quick_look.how_wrong(target, sample, order) for order in (0, *target.orders)}
    return _Look(sized.sizes, sample, ratios)


def _finding(target: Target, subject: Subject, looks: list[_Look]) -> Finding | None:
    """Return the finding on one order: what fails at a size, or at how many sizes it agrees."""
    order = subject.order or 0
    known = [look for look in looks if not np.isnan(look.ratios[order])]
    doubtful = sorted((look for look in known if look.ratios[order] > 1), key=lambda look: -look.ratios[order])
    unknown = len(doubtful[MAX_SUSPECTS:])
    # The smallest size that fails is the easiest to reproduce.
    for look in sorted(doubtful[:MAX_SUSPECTS], key=lambda look: look.sample.point.size):
        target.checkpoint()
        findings = list(quick_look.compare(target, subject, look.sample))
        for finding in findings:
            if finding.verdict == "fail":
                return replace(finding, sentence=f"at {look.sizes}: {finding.sentence}")
        unknown += all(finding.verdict != "pass" for finding in findings)
    if not known:
        return None
    agreeing, by_size = len(known) - unknown, sorted(known, key=lambda look: look.sample.point.size)
    sentence = f"{NAMES[order]} agrees at {agreeing} sizes, from {by_size[0].sizes} to {by_size[-1].sizes}"
    if unknown:
        sentence += f"; inconclusive at {unknown} (kinks, jumps or no digits)"
    verdict = "pass" if agreeing else "inconclusive"
    return Finding(subject, verdict, sentence, len(known), inconclusive={"no derivative": unknown} if unknown else {})


# The other checks evaluate the op's numbers in one dimension, and the service pads them to a few lengths. In any
# other shape the same numbers have the same results, so no derivative is needed.
def checked_shapes(target: Target, subject: Subject) -> Iterator[Finding]:
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
        yield _other_shapes(replace(subject, order=order), compared)


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
    subject, call = (
        Subject("sizes", mode=mode, dtype=target.widest),
        Call(point, ("", ""), dys, vectors, needs_all=True),
    )
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


def _other_shapes(subject: Subject, compared: Sequence[tuple[Shape, Comparison]]) -> Finding:
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
