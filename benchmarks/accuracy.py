"""Our numeric derivatives beside SciPy's and numdifftools', against closed forms: ``make accuracy``.

The forty functions of ``tests/gradcheck/functions.py``, at all their points. Each method returns a derivative and an
error bar; the table shows its true error in units of that bar, and its cost. Nothing is timed, so two runs on one
machine print the same.

``python -m benchmarks.accuracy`` prints Markdown, and ``python -m benchmarks.accuracy PAGE`` writes it into a page,
between the two marker lines of the part.
"""

import math
import statistics
import warnings
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

import numdifftools
import numpy as np
from scipy import differentiate

from benchmarks.pages import publish
from pullback.gradcheck.numeric import Status, slopes
from tests.gradcheck.functions import BARS, CONFIDENTLY_WRONG, FUNCTIONS, UNIT, Function, scale

PART = "accuracy table"
EXACT_ULPS = 4
"""How many units in the last place count as none: the closed forms are rounded too, and some are a few units off."""

F = Callable[[Any], Any]
ABOUT = """\
{cases} derivatives: {functions} functions, each at two to four points. An *error bar* is a method's own estimate of its
error: `Slopes.error` for ours, `error` of SciPy's result, `error_estimate` of numdifftools'. The libraries are
SciPy {scipy}, numdifftools {numdifftools} and NumPy {numpy}, with their defaults, and again with the largest step
that our method gets, because their defaults do not depend on the function's scale. Our own tests use these functions.

- An error under {ulps} units in the last place of the closed form (evaluated in 80 bits, because some of them cancel)
  counts as zero, and no bar counts as narrower than that.
- *No answer* is a NaN, or an estimate that the method itself reports as failed: `status` for ours, no `success` for
  SciPy. In the medians it counts as infinitely far off. The row *success or not* uses SciPy's estimates anyway.
- SciPy's defaults ask for a relative error of 1.5e-8 and stop there. A derivative that is 0 can hardly meet this, and
  gives no answer: an absolute tolerance would help.
- The medians leave out errors relative to a derivative that is 0. A function that has only such errors shows "–".
"""


class Estimate(NamedTuple):
    """A derivative estimated by a method, with its error bar; ``answered`` says whether the method reports success."""

    value: float
    bar: float
    answered: bool


class Judged(NamedTuple):
    """The error of an estimate, in units of its error bar and relative; NaN where there is none."""

    answered: bool
    bars: float
    relative: float
    relative_bar: float
    evaluations: int


def ours(f: F, x: float) -> Estimate:
    """Estimate as the service does."""
    found = slopes(lambda t: f(x + t), np.array([scale(x)]), UNIT)
    return Estimate(float(found.value[0]), float(found.error[0]), found.status[0] == Status.OK)


def with_scipy(f: F, x: float, **options: Any) -> Estimate:
    """Estimate with scipy.differentiate."""
    found = differentiate.derivative(f, x, **options)
    return Estimate(float(found.df), float(found.error), bool(found.success))


def with_numdifftools(f: F, x: float, **options: Any) -> Estimate:
    """Estimate with numdifftools, which never reports a failure."""
    with warnings.catch_warnings():
        # It warns if all values are NaN, which is counted here.
        warnings.simplefilter("ignore")
        found = numdifftools.Derivative(f, full_output=True, **options)(x)
    return Estimate(float(found.estimate), float(found.error_estimate), answered=True)


def scaled_scipy(f: F, x: float) -> Estimate:
    """Estimate with scipy.differentiate, starting from our largest step."""
    return with_scipy(f, x, initial_step=scale(x))


def any_scipy(f: F, x: float) -> Estimate:
    """Estimate with scipy.differentiate, and accept estimates that it reports as failed."""
    return with_scipy(f, x)._replace(answered=True)


def scaled_numdifftools(f: F, x: float) -> Estimate:
    """Estimate with numdifftools, starting from our largest step."""
    return with_numdifftools(f, x, step=numdifftools.MaxStepGenerator(base_step=scale(x), step_nom=1.0))


METHODS: dict[str, Callable[[F, float], Estimate]] = {
    "ours": ours,
    "SciPy": with_scipy,
    "numdifftools": with_numdifftools,
    "SciPy, success or not": any_scipy,
    "SciPy, our step": scaled_scipy,
    "numdifftools, our step": scaled_numdifftools,
}
IN_DETAIL = ("ours", "SciPy", "numdifftools")


def true_slope(one: Function, x: float) -> np.longdouble:
    """Return the closed form at x, with extra digits because some of them cancel."""
    try:
        return np.longdouble(one.slope(np.longdouble(x)))
    except TypeError:
        # Two of SciPy's special functions support only float64. They are accurate to 4 units at our points.
        return np.longdouble(one.slope(np.float64(x)))


def judge(method: Callable[[F, float], Estimate], one: Function, x: float) -> Judged:
    """Run a method on a function at a point, and compare."""
    evaluations = 0

    def f(x: Any) -> Any:
        nonlocal evaluations
        evaluations += np.size(x)
        return one.f(x)

    found, truth = method(f, x), true_slope(one, x)
    least = EXACT_ULPS * float(np.spacing(abs(np.float64(truth))))
    wrong, bar = float(abs(found.value - truth)), max(found.bar, least)
    if not found.answered or math.isnan(wrong) or math.isnan(found.bar):
        return Judged(False, math.inf, math.inf, math.inf, evaluations)
    wrong, size = (wrong if wrong >= least else 0.0), float(abs(truth)) or math.nan
    return Judged(True, wrong / bar, wrong / size, bar / size, evaluations)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with text in the first column and numbers in the others."""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def median(values: Iterable[float]) -> str:
    """Return the median of the values that are not NaN."""
    return f"{statistics.median(value for value in values if not math.isnan(value)):.0e}"


def total(name: str, cases: Sequence[Judged]) -> list[str]:
    """Return the table row of a method."""
    answered = [case for case in cases if case.answered]
    return [
        name,
        str(len(cases)),
        str(sum(case.bars <= BARS for case in answered)),
        str(sum(case.bars > CONFIDENTLY_WRONG for case in answered)),
        str(len(cases) - len(answered)),
        median(case.relative for case in cases),
        median(case.relative_bar for case in cases),
        f"{statistics.mean(case.evaluations for case in cases):.0f}",
    ]


def worst(errors: Iterable[float], digits: str) -> str:
    """Return the largest error at a function's points, without NaN."""
    most = max((error for error in errors if not math.isnan(error)), default=math.nan)
    return "–" if math.isnan(most) else f"{most:{digits}}" if most else "exact"


def silence(cases: Sequence[Judged]) -> str:
    """Return the number of a function's points without an answer."""
    silent = sum(not case.answered for case in cases)
    return f"no answer at {silent} of {len(cases)}" if silent else ""


def detail(name: str, of: dict[str, list[Judged]]) -> list[str]:
    """Return the table row of a function."""
    answers = [[case for case in of[method] if case.answered] for method in IN_DETAIL]
    bars = [worst((case.bars for case in cases), ".2g") if cases else "" for cases in answers]
    silent = [silence(of[method]) for method in IN_DETAIL]
    both = [", ".join(filter(None, words)) for words in zip(bars, silent, strict=True)]
    return [name, *both, *(worst((case.relative for case in cases), ".0e") for cases in answers)]


def part() -> str:
    """Return the part of the page: the method, the totals, and a row for each function."""
    found = {
        name: {method: [judge(run, one, x) for x in one.at] for method, run in METHODS.items()}
        for name, one in FUNCTIONS.items()
    }
    cases = {method: [case for of in found.values() for case in of[method]] for method in METHODS}
    versions = {library: version(library) for library in ("scipy", "numdifftools", "numpy")}
    about = ABOUT.format(cases=len(cases["ours"]), functions=len(FUNCTIONS), ulps=EXACT_ULPS, **versions)
    within, over = f"within {BARS:g} bars", f"off by over {CONFIDENTLY_WRONG:g}"
    medians = ("median relative error", "median relative bar", "evaluations, mean")
    totals = table(
        ("method", "cases", within, over, "no answer", *medians), (total(name, of) for name, of in cases.items())
    )
    columns = [f"{method}, {unit}" for unit in ("bars", "relative") for method in IN_DETAIL]
    details = table(("worst error of", *columns), (detail(name, of) for name, of in found.items()))
    return f"{about}\n{totals}\n{details.rstrip()}"


def main() -> None:
    """Print the part, or write it into the named page."""
    # The functions are evaluated outside their domains too; the results are counted.
    with np.errstate(all="ignore"):
        text = part()
    publish(PART, text)


if __name__ == "__main__":
    main()
