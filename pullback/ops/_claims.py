"""Claims: what a gradient is compared with in checks, also where it is deliberately not the derivative."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from numpy.typing import NDArray

from pullback.ops._attrs import Attrs
from pullback.ops._fields import check_fields

Array: TypeAlias = NDArray[Any]
Arrays: TypeAlias = Sequence[Array]


@dataclass(frozen=True)
class Derivative:
    """The claim of being the true derivative: first, of forward; second, of the op's own ``vjp(x, dy)``."""


@dataclass(frozen=True)
class Surrogate:
    """The claim of being the derivative of another function, in NumPy.

    As a first claim ``of(primals, at) -> outputs``; as a second ``of(primals, cotangents, at) -> dx``. ``at`` are the
    same primals frozen at the point: constants, as under ``tf.stop_gradient``.
    """

    of: Callable[..., Arrays]

    def __post_init__(self) -> None:
        """Raise ``TypeError`` for anything but a function."""
        check_fields(Surrogate, self, "Surrogate")


@dataclass(frozen=True)
class Formula:
    """The claim of being a formula that is not the derivative of any function, in NumPy.

    As a first claim ``vjp(primals, cotangents) -> dx``; as a second ``vjp(primals, cotangents, ddx) -> x slots``.
    """

    vjp: Callable[..., Arrays]

    def __post_init__(self) -> None:
        """Raise ``TypeError`` for anything but a function."""
        check_fields(Formula, self, "Formula")


@dataclass(frozen=True)
class Claim:
    """What a gradient claims to be, so that it can be checked even when it is deliberately not the derivative.

    ``first`` is about dx, ``second`` about the x slots of ``vjp_vjp`` (its dy slots are always those of the op's own
    vjp); with ``second=None`` there is no second order, as for TensorFlow's ``igamma``: requests for it are refused.
    ``linear`` says whether vjp is linear in dy: if not, there is no jvp.
    """

    first: Derivative | Surrogate | Formula = Derivative()
    second: Derivative | Surrogate | Formula | None = Derivative()
    linear: bool = True

    def __post_init__(self) -> None:
        """Raise ``TypeError`` for anything but claims."""
        check_fields(Claim, self, "Claim")


def true_derivative(attrs: Attrs) -> Claim:
    """Claim the true derivative at both orders, whatever the attributes: the default claim."""
    del attrs
    return Claim()
