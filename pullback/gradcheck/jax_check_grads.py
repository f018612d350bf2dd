"""``check_grads`` with the arguments of that of ``jax.test_util``."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pullback.errors import BadArgument
from pullback.gradcheck.assertion import GradientReport, WrongGradient, ignored, judged
from pullback.gradcheck.events import TargetOptions
from pullback.gradcheck.of.called import called_function

FIRST = ("derivative", "determinism", "subset", "linearity", "adjoint", "dtypes", "modes", "mutation")
SECOND = ("second", "symmetry")
HIGHEST = 2


def check_grads(  # noqa: PLR0917 - those of jax.test_util
    f: Callable[..., Any],
    args: Sequence[Any],
    order: int,
    modes: str | Sequence[str] = ("fwd", "rev"),
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
) -> GradientReport:
    """Check the gradient of a function as ``pullback.gradcheck.check`` does, in the place of ``jax.test_util``'s.

    ``modes`` are "fwd", "rev" or both; forward mode alone is what a function with ``while_loop`` has. Of an ``order``
    above 2, the first two are checked. Tolerances are ignored, with a warning: the error bars are measured. Returns
    the report. Raises ``WrongGradient``, an ``AssertionError``, and ``BadArgument`` for a function that cannot be
    checked.
    """
    __tracebackhide__ = True
    asked = [modes] if isinstance(modes, str) else list(modes)
    if order < 1 or not asked or not {*asked} <= {"fwd", "rev"}:
        raise BadArgument(f"expected an order from 1 and modes from 'fwd' and 'rev', got {order} and {modes!r}")
    ignored("check_grads", {"atol": atol, "rtol": rtol, "eps": eps}, {f"order {order}": order > HIGHEST})
    target = replace(called_function(f, tuple(args), kind="jax"), only_forward="rev" not in asked)
    checks = [*FIRST, *(SECOND if order > 1 else ())]
    found = judged(target, TargetOptions(checks=checks), needed=SECOND if order > 1 else FIRST)
    if not found:
        raise WrongGradient(found)
    return found
