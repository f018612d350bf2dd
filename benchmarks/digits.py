"""How well the uncertainty of answers is calibrated, against derivatives in 60 digits: ``make digits``.

The ops of ``tests/gradcheck/hard``, at their examples: outputs, gradients and second order, in each of their dtypes.
``python -m benchmarks.digits`` prints Markdown, and ``python -m benchmarks.digits PAGE`` writes it into a page.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
from mpmath import mp

from app.autodiff.binding import moved
from app.autodiff.derivatives import Absent, forward, hvp, vjp
from app.autodiff.point import Arrays, Point
from app.autodiff.uncertainty import unit
from app.autodiff.widest import typed
from app.errors import PullbackError
from app.gradcheck.options import Options
from app.gradcheck.target import Target
from app.requests.digits import with_uncertainty
from app.tensors.json import decode
from benchmarks.pages import publish, table
from tests.gradcheck.checking import CPU
from tests.gradcheck.hard import HARD, MODULES
from tests.gradcheck.hard.exact import DIGITS, Where, true_values

PART = "digits table"
# The most numbers of an op that are compared, and the limits of what is counted.
NUMBERS, TIMES = 12, 30.0
WORKERS = 2
HEAD = ("ops", "dtype", "numbers", "over a unit off", "error over the estimate", f"estimate over {TIMES:g} errors")
SIDES = {"cotangents": "outputs", "vectors": "inputs"}
ABOUT = """\
{ops} ops that are hard to compute, at their examples: outputs, gradients and second order. The true values are
computed in {digits} digits, from the same rounded inputs. *Over a unit off* are the numbers whose error is more than a
unit in the last place of the answer. Of all numbers, some have an error over their estimate; of those over a unit off,
some have an estimate over {times:g} times their error."""


def main() -> None:
    """Print the part, or write it into the named page."""
    families = {hard.op.name: module.__name__.rpartition(".")[2] for module in MODULES for hard in module.OPS.values()}
    names = [name for name, hard in HARD.items() if hard.exact is not None]
    totals: dict[tuple[str, str], Any] = defaultdict(lambda: np.zeros(4, int))
    with ProcessPoolExecutor(WORKERS, get_context("spawn")) as pool:
        for name, found in zip(names, pool.map(counts, names), strict=True):
            for dtype, some in found.items():
                for family in (families[name], "all"):
                    totals[family, dtype] += some
    rows = [line(family.replace("_", " "), dtype, counted) for (family, dtype), counted in sorted(totals.items())]
    about = ABOUT.format(ops=len(names), digits=DIGITS, times=TIMES)
    publish(PART, f"{about}\n\n{table(HEAD, rows)}")


def line(family: str, dtype: str, counted: Any) -> list[str]:
    """Return a row of the table."""
    numbers, off, under, over = map(int, counted)
    return [
        family,
        dtype,
        str(numbers),
        str(off),
        f"{under} ({under / numbers:.1%})",
        f"{over} ({over / max(off, 1):.0%})",
    ]


def counts(name: str) -> dict[str, Any]:
    """Return how many numbers of an op there are in each of its dtypes, and how many of each kind."""
    op, found = HARD[name].op, dict[str, Any]()
    sample = Target(op, {}, Options(CPU), decode, None).samples[0]
    for dtype in op.dtypes:
        spec = replace(sample.point.spec, dtype=dtype)
        inputs, directions = sample.point.inputs, {"cotangents": sample.cotangents, "vectors": sample.vectors}
        if op.batching == "elementwise":
            inputs = _first(inputs)
            directions = {field: _first(named) for field, named in directions.items()}
        elif sum(v.size for v in sample.vectors.values()) > NUMBERS:
            continue
        dtypes = {"inputs": spec.inputs.dtypes, "outputs": spec.outputs.dtypes}
        typed_there = {field: typed(named, dtypes[SIDES[field]]) for field, named in directions.items()}
        point = moved(replace(sample.point, spec=spec), typed(inputs, spec.inputs.dtypes))
        total = np.zeros(4, int)
        for error, last, estimate in _compared(name, point, typed_there):
            off = error > last
            total += [error.size, off.sum(), (error > estimate).sum(), (off & (estimate > TIMES * error)).sum()]
        if total[0]:
            found[dtype] = total
    return found


def _first(named: Arrays) -> dict[str, Any]:
    return {name: x.ravel()[:NUMBERS] for name, x in named.items()}


def _compared(name: str, point: Point, directions: Mapping[str, Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the errors, the units in the last place and the estimates of the finite numbers of each result."""
    hard, wrt, has_second = HARD[name], tuple(directions["vectors"]), HARD[name].op.claim(point.spec.attrs).second
    where = Where(point.inputs, directions["cotangents"], directions["vectors"], point.spec.attrs.model_dump())
    for kind in ("outputs", "gradients", "products")[: 3 if has_second is not None else 2]:
        work, tree = partial(_work, kind, wrt), lambda found: {"": found[1] if isinstance(found, tuple) else found}
        try:
            result, estimates = with_uncertainty(work, tree, point, directions, SIDES)(lambda: None)
            true = true_values(hard, where, (kind,))
        except (PullbackError, ValueError, ZeroDivisionError):
            continue  # The op has no digits, or neither it nor mpmath has a value here.
        for slot, y in tree(result)[""].items():
            if isinstance(y, Absent) or y.dtype.kind in "iub" or (kind, slot) not in true:
                continue
            values, exact = y.ravel(), np.ravel(true[kind, slot])
            finite = np.isfinite(values.astype(np.float64))
            with mp.workdps(DIGITS):
                pairs = zip(values[finite], exact[finite], strict=True)
                error = np.array([float(abs(mp.mpf(float(is_)) - should)) for is_, should in pairs])
            yield error, unit(values[finite]), estimates[""][slot].ravel()[finite].astype(np.float64)


def _work(kind: str, wrt: tuple[str, ...], point: Point, directions: Mapping[str, Any]) -> Any:
    if kind == "outputs":
        return forward(point)
    if kind == "gradients":
        return vjp(point, wrt, directions["cotangents"], batched=False, outputs=False)
    return hvp(point, wrt, directions["cotangents"], directions["vectors"], batched=False)


if __name__ == "__main__":
    main()
