"""``pullback.gradcheck.check``: the checks of a function as an assertion, for tests."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from pullback.errors import BadArgument
from pullback.findings import Counting, is_accepted, text_of
from pullback.gradcheck.events import TargetOptions, function_report
from pullback.gradcheck.number_comparison import Tolerances
from pullback.gradcheck.of.called import CalledFunction, Kind, called_function
from pullback.gradcheck.of.local import Domain, Given
from pullback.gradcheck.report import CHECKS
from pullback.reports import Report, report


class GradientReport(Report):
    """The report on a function: true if its verdict is pass. Its text has the findings as ``pullback check`` does."""

    def __bool__(self) -> bool:
        return self.verdict == "pass"

    def __str__(self) -> str:
        found = [check for check in self.checks if not is_accepted(check.verdict, "fail")]
        return "\n".join([f"{self.verdict}: {self.sentence}", *text_of(self.op, found)])


class WrongGradient(AssertionError):
    """A gradient is wrong, or could not be judged; ``report`` says where and by how much."""

    def __init__(self, found: GradientReport) -> None:
        """Take the report."""
        super().__init__(str(found))
        self.report = found


def check(
    function: Callable[..., Any],
    inputs: Any,
    *,
    vjp: Callable[..., Any] | None = None,
    hvp: Callable[..., Any] | None = None,
    kind: Kind | None = None,
    domains: Mapping[str, tuple[float, float]] | None = None,
    dtypes: Sequence[str] = (),
    checks: Sequence[str] | None = None,
    seed: int = 0,
    budget: int | None = None,
    absolute: float = 0.0,
    relative: float = 0.0,
    inconclusive: Counting = "fail",
    raises: bool = True,
) -> GradientReport:
    """Check the gradient of a function at its inputs and around them, as ``pullback check torch+MODULE:FUNCTION`` does.

    ``inputs`` are its arguments: a tuple in their order, a dict by name, or the only one. A function of NumPy has its
    gradient in ``vjp(*inputs, dy)``, or ``vjp(*inputs)`` of a scalar, and may have ``hvp(*inputs, v)``. ``domains`` are
    intervals of numbers by name, ``dtypes`` narrower dtypes that are compared with the reference. The function is
    called in this thread.

    Raises ``WrongGradient``, an ``AssertionError`` with the report, unless the verdict is pass, or inconclusive with
    ``inconclusive="pass"``; without ``raises``, the report is returned in any case. Raises ``BadArgument`` for a
    function that cannot be checked.
    """
    __tracebackhide__ = True
    intervals = {name: Domain(*map(float, interval)) for name, interval in (domains or {}).items()}
    options = TargetOptions(
        checks=checks,
        seed=seed,
        budget=budget,
        tolerances=Tolerances(absolute, relative),
        given=Given(domains=intervals, dtypes=tuple(dtypes)),
    )
    target = called_function(function, inputs, kind=kind, vjp=vjp, hvp=hvp)
    found = judged(target, options, checks or CHECKS)
    if raises and not is_accepted(found.verdict, inconclusive):
        raise WrongGradient(found)
    return found


def judged(target: CalledFunction, options: TargetOptions, needed: Sequence[str]) -> GradientReport:
    """Return the report on a function, which is called in this thread.

    Raises ``BadArgument`` if the function has what none of the ``needed`` checks needs.
    """
    with ExitStack() as opened:
        checked = function_report(target, options, opened)
        if not {*checked.checks} & {*needed}:
            what = f"a function for which one of the checks {', '.join(needed)} can run"
            raise BadArgument(f"{target}: expected {what}, got one without. {checked.function.remark}".rstrip())
        checked.run(lambda _: None)
    return GradientReport(**vars(report(checked.document())))


def ignored(caller: str, tolerances: Mapping[str, float | None], others: Mapping[str, bool]) -> None:
    """Warn of arguments that another checker has: tolerances that are given, and ``others`` that are true."""
    if names := [name for name, value in tolerances.items() if value is not None]:
        text = "error bars are measured; for a loop that ends by a tolerance, pullback.gradcheck.check has relative="
        warnings.warn(f"{caller} ignores {', '.join(names)}: {text}", stacklevel=3)
    if names := [name for name, value in others.items() if value]:
        warnings.warn(f"{caller} does not check {', '.join(names)}", stacklevel=3)
