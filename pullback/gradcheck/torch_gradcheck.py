"""``gradcheck`` and ``gradgradcheck`` with the arguments of those of ``torch.autograd``."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pullback.errors import BadArgument
from pullback.gradcheck.assertion import GradientReport, check, ignored

FIRST = ("derivative", "determinism", "subset", "linearity", "adjoint", "dtypes", "layouts", "mutation")
SECOND = ("second", "symmetry")


def gradcheck(
    func: Callable[..., Any],
    inputs: torch.Tensor | Sequence[Any],
    *,
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    raise_exception: bool = True,
    nondet_tol: float | None = None,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> GradientReport:
    """Check the gradient of a function as ``pullback.gradcheck.check`` does, in the place of ``torch.autograd``'s.

    As there, the inputs are those tensors that require a gradient. Tolerances are ignored, with a warning: the error
    bars are measured. So is what ``torch.func.vmap`` makes of the gradient. Reverse and forward mode are checked
    whatever the other arguments say, as far as the function has them. Returns a report that is true if the gradient is
    right. Raises ``WrongGradient``, an ``AssertionError``, unless ``raise_exception`` is false, and ``BadArgument`` for
    a function that cannot be checked.
    """
    __tracebackhide__ = True
    del check_undefined_grad, check_grad_dtypes, check_forward_ad, check_backward_ad, fast_mode, masked
    tolerances = {"eps": eps, "atol": atol, "rtol": rtol, "nondet_tol": nondet_tol}
    batched = {"check_batched_grad": check_batched_grad, "check_batched_forward_grad": check_batched_forward_grad}
    ignored("gradcheck", tolerances, batched)
    return check(func, _arguments(inputs), kind="torch", checks=FIRST, raises=raise_exception)


def gradgradcheck(
    func: Callable[..., Any],
    inputs: torch.Tensor | Sequence[Any],
    grad_outputs: torch.Tensor | Sequence[torch.Tensor | None] | None = None,
    *,
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float | None = None,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> GradientReport:
    """Check the second order of a function: double backward, at random cotangents in place of ``grad_outputs``.

    Otherwise as ``gradcheck``, whose checks do not run.
    """
    __tracebackhide__ = True
    del grad_outputs, gen_non_contig_grad_outputs, check_undefined_grad, check_grad_dtypes
    del check_fwd_over_rev, check_rev_over_rev, fast_mode, masked
    tolerances = {"eps": eps, "atol": atol, "rtol": rtol, "nondet_tol": nondet_tol}
    ignored("gradgradcheck", tolerances, {"check_batched_grad": check_batched_grad})
    return check(func, _arguments(inputs), kind="torch", checks=SECOND, raises=raise_exception)


def _arguments(inputs: torch.Tensor | Sequence[Any]) -> tuple[Any, ...]:
    """Return the arguments of a function; raise ``BadArgument`` if none requires a gradient."""
    found = (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)
    if not any(isinstance(x, torch.Tensor) and x.requires_grad for x in found):
        raise BadArgument("inputs: expected a tensor that requires a gradient, got none: add requires_grad=True")
    return found
