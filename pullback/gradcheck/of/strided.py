"""Call a function with strided arrays: a kernel that assumes contiguous memory reads wrong numbers from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pullback.dtypes import Array
from pullback.gradcheck.function import Arrays
from pullback.gradcheck.of.library import Library
from pullback.gradcheck.of.trees import Tree


@dataclass
class Strided:
    """A function that gets every second number of inputs, cotangents and directions that are twice as long."""

    library: Library
    mode: str = "strided"
    remark: str = ""
    has_layouts: bool = False

    def leaves(self, arguments: Mapping[str, Tree]) -> dict[str, Array]:
        """Return those of the function."""
        return self.library.leaves(arguments)

    def values(self, leaves: Arrays) -> dict[str, Array]:
        """Return the outputs."""
        return self.library.values(_all(leaves))

    def vjp(self, leaves: Arrays, output: str, cotangent: Array, inputs: Sequence[str]) -> dict[str, Array]:
        """Return Jᵀ dy by input."""
        return self.library.vjp(_all(leaves), output, strided(cotangent), inputs)

    def jvp(self, leaves: Arrays, name: str, tangent: Array, outputs: Sequence[str]) -> dict[str, Array]:
        """Return J tx by output."""
        return self.library.jvp(_all(leaves), name, strided(tangent), outputs)

    def hessian(self, leaves: Arrays, output: str, inputs: tuple[str, str], dy: Array, v: Array) -> Array:
        """Return ∂/∂b [Jₐᵀ dy] · v."""
        return self.library.hessian(_all(leaves), output, inputs, strided(dy), strided(v))

    def source(self, name: str, leaves: Arrays, output: str, cotangent: Array, wrt: str) -> tuple[str, str]:
        """Return that of the function."""
        return self.library.source(name, leaves, output, cotangent, wrt)

    def other(self) -> None:
        """Return no other mode."""


def strided(x: Array) -> Array:
    """Return equal numbers with others between them."""
    return np.repeat(x[..., None], 2, axis=-1)[..., 0] if x.ndim else x


def _all(leaves: Arrays) -> dict[str, Array]:
    return {name: strided(x) for name, x in leaves.items()}
