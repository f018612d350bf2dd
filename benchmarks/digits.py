"""How well the uncertainty of answers is calibrated, against values and derivatives in 60 digits: ``make digits``.

The ops of ``benchmarks/digits_ops.py`` at examples and random points: outputs, gradients and second order, in each of
their float dtypes. ``python -m benchmarks.digits`` prints Markdown, and ``python -m benchmarks.digits PAGE`` writes it
into a page.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from multiprocessing import get_context
from typing import Any

import numpy as np
from mpmath import mp

from app.autodiff.absent import Absent
from app.autodiff.binding import moved
from app.autodiff.derivatives import Kind, values_up_to
from app.autodiff.point import Point
from app.autodiff.uncertainty import unit
from app.errors import PullbackError
from app.gradcheck.options import Options
from app.gradcheck.sample import Sample
from app.gradcheck.target import Target
from app.requests.digits import with_uncertainty
from app.runtime.modes import Key
from app.tensors.json import decode
from benchmarks.digits_ops import truths, values
from benchmarks.pages import publish, table
from ops import FLOATS
from tests.gradcheck.checking import CPU
from tests.gradcheck.hard.exact import DIGITS, Hard, Where

PART = "digits table"
# The most numbers and points of an op that are compared, and the limit of what is counted.
NUMBERS, POINTS, TIMES = 12, 2, 30.0
LEAST = 1e-20
WORKERS = 2
SIDES = {"cotangents": "outputs", "vectors": "inputs"}
KINDS: dict[Kind, tuple[Kind, ...]] = {
    "gradients": ("outputs", "gradients"),
    "products": ("outputs", "gradients", "products"),
}
ALL = "all"
ABOUT = """\
How good the estimates are, for {ops} ops and up to {numbers} numbers of each at up to {points} points: outputs,
gradients and second order. The true values are computed in {digits} digits, from the same rounded inputs. A cell has
the numbers that were compared, the share of them whose error is over their estimate, and the share with an estimate
over {times:g} times their error, of those whose error is over a unit in the last place. The families behind the
registered ops are those of `tests/rows` and `tests/gradcheck/hard`, most of which lose digits on purpose."""


def main() -> None:
    """Print the part, or write it into the named page."""
    families = [family for family, _ in truths()]
    totals: dict[str, dict[str, Any]] = defaultdict(lambda: defaultdict(lambda: np.zeros(4, int)))
    with ProcessPoolExecutor(WORKERS, get_context("spawn")) as pool:
        for family, found in zip(families, pool.map(counts, range(len(families))), strict=True):
            for dtype, some in found.items():
                for name in (family, ALL):
                    totals[name][dtype] += some
    totals[ALL] = totals.pop(ALL)
    rows = [[family, *(cell(found.get(dtype)) for dtype in FLOATS)] for family, found in totals.items()]
    about = ABOUT.format(ops=len(families), numbers=NUMBERS, points=POINTS, digits=DIGITS, times=TIMES)
    publish(PART, f"{about}\n\n{table(('ops', *FLOATS), rows)}")


def cell(counted: Any) -> str:
    """Return the numbers of some ops in a dtype, and the shares of them that are off."""
    if counted is None:
        return ""
    numbers, off, under, over = map(int, counted)
    return f"{numbers}: {under / numbers:.1%}, {over / max(off, 1):.0%}"


def counts(number: int) -> dict[str, Any]:
    """Return how many numbers an op has in each of its dtypes, and how many of each kind."""
    truth, found = next(islice(truths(), number, None))[1], dict[str, Any]()
    for dtype in FLOATS:
        total = np.zeros(4, int)
        for error, last, estimate in compared(truth, dtype) if dtype in truth.op.dtypes else ():
            off = error > last
            total += [error.size, off.sum(), (error > estimate).sum(), (off & (estimate > TIMES * error)).sum()]
        if total[0]:
            found[dtype] = total
    return found


def compared(truth: Hard, dtype: str) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the errors, the units in the last place and the estimates of the finite numbers of each result."""
    target = Target(truth.op, {}, Options(CPU), decode)
    for wide in _samples(target):
        if (sample := target.in_dtype(wide, dtype)) is None:
            continue
        point, directions = sample.point, {"cotangents": sample.cotangents, "vectors": sample.vectors}
        where = Where(point.inputs, sample.cotangents, sample.vectors, point.spec.attrs.model_dump())
        try:
            work = partial(_work, sample.last)
            found, estimates = with_uncertainty(work, _tree, point, directions, SIDES)(lambda: None)
            true = values(truth, where, KINDS[sample.last])
        except (PullbackError, TypeError, ValueError, ZeroDivisionError):
            continue  # The op has no digits, or neither it nor mpmath has a value here.
        for key, exact in true.items():
            if not isinstance(estimate := estimates[_name(key)], Absent):
                yield _errors(found[key].ravel(), np.ravel(exact), estimate.ravel())


def _samples(target: Target) -> list[Sample]:
    """Return examples and random points of an op; of an elementwise one, a few numbers."""
    samples = target.samples
    if target.op.batching == "elementwise":
        x = next(iter(samples[0].point.inputs.values()))
        return [_at(samples[0], np.linspace(0, x.size - 1, min(NUMBERS, x.size)).astype(int))]
    return [sample for sample in samples if sum(v.size for v in sample.vectors.values()) <= NUMBERS][:POINTS]


def _at(sample: Sample, places: Any) -> Sample:
    """Return a sample of an elementwise op at some of its places."""
    inputs, cotangents, vectors = (
        {name: x.ravel()[places] for name, x in named.items()}
        for named in (sample.point.inputs, sample.cotangents, sample.vectors)
    )
    return replace(sample, point=moved(sample.point, inputs), cotangents=cotangents, vectors=vectors)


def _errors(found: Any, exact: Any, estimates: Any) -> tuple[Any, Any, Any]:
    finite = np.isfinite(found.astype(np.float64))
    with mp.workdps(DIGITS):
        pairs = zip(found[finite], exact[finite], strict=True)
        error = np.array([_error(mp.mpf(float(is_)), should) for is_, should in pairs])
    return error, unit(found[finite]), estimates[finite].astype(np.float64)


def _error(number: Any, true: Any) -> float:
    """Return how far a number is off; derivatives in 60 digits are differences, and off themselves."""
    error = abs(number - true)
    return 0.0 if error < LEAST * abs(true) else float(error)


def _work(last: Kind, point: Point, directions: Mapping[str, Any]) -> Any:
    return values_up_to(last, point, directions["cotangents"], directions["vectors"])


def _tree(values: Mapping[Key, Any]) -> dict[str, Any]:
    return {_name(key): value for key, value in values.items()}


def _name(key: Key) -> str:
    return "/".join(map(str, key))


if __name__ == "__main__":
    main()
