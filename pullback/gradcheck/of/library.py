"""What the checks ask of a function of any library."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from pullback.dtypes import Array
from pullback.gradcheck.function import Arrays
from pullback.gradcheck.of.calling import Tree


class Library(Protocol):
    """A function in its library: arrays go in and come out as those of NumPy, and keep their dtype.

    Those of bfloat16, which NumPy lacks, are bits. Complex numbers are two arrays, such as z.real and z.imag.
    What the function raises comes out as it is. ``mode`` is how it runs, such as jit or eager; the ``remark`` is what
    of it is not checked, or "".
    """

    mode: str
    remark: str
    has_layouts: bool
    """Whether its arrays may be other than contiguous."""
    checks_indices: bool
    """Whether an index beyond the size of an array is an error."""
    has_solver: bool
    """Whether a loop that it compiles ends by its numbers; known after the first values."""
    casts_to: str
    """The narrowest dtype that floats are cast to inside, "" for none; known after the first values."""
    draws: bool
    """Whether it draws random numbers, which are others in another dtype; known after the first values."""
    dtypes: Sequence[str]
    """Those of floats."""

    def leaves(self, arguments: Mapping[str, Tree]) -> dict[str, Array]:
        """Keep the arguments, and return the arrays of floats in them, by name; the others stay as they are."""
        ...

    def values(self, leaves: Arrays) -> dict[str, Array]:
        """Return the outputs that are arrays of floats, by name."""
        ...

    def vjp(self, leaves: Arrays, output: str, cotangent: Array, inputs: Sequence[str]) -> dict[str, Array]:
        """Return Jᵀ dy by input, where J is the Jacobian of one output."""
        ...

    def jvp(self, leaves: Arrays, name: str, tangent: Array, outputs: Sequence[str]) -> dict[str, Array]:
        """Return J tx by output. Raises ``NotImplementedError`` if the function has no forward mode."""
        ...

    def hessian(self, leaves: Arrays, output: str, inputs: tuple[str, str], dy: Array, v: Array) -> Array:
        """Return ∂/∂b [Jₐᵀ dy] · v. Raises ``NotImplementedError`` if the function has no second order."""
        ...

    def source(self, name: str, leaves: Arrays, output: str, cotangent: Array, wrt: str) -> tuple[str, str]:
        """Return Python that computes the gradient in ``wrt`` of a function of this name: a setup, an expression."""
        ...

    def widened(self) -> "Library | None":
        """Return the function with float64 in place of narrower dtypes that it casts to, ``None`` if it has none."""
        ...

    def other(self, *, compiles: bool) -> "Library | None":
        """Return the function in another mode, with the same arguments; ``None`` if there is none.

        If it ``compiles``, it may take a minute. Raises ``BadArgument`` if it cannot.
        """
        ...
