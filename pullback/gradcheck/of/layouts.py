"""Call a function with arrays that are not contiguous: a kernel that assumes so reads wrong numbers from them."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from pullback.dtypes import Array
from pullback.gradcheck.function import Arrays
from pullback.gradcheck.of.calling import Tree
from pullback.gradcheck.of.library import Library

FEWEST = 3
"""Fewer numbers are in order by chance."""
Change: TypeAlias = Callable[[Array], Array]


def is_ordered(x: Array) -> bool:
    """Return whether numbers ascend."""
    return x.ndim == 1 and x.size >= FEWEST and bool((np.diff(x) > 0).all())


def resampled(x: Array, size: int) -> Array:
    """Return so many ascending numbers, between the ends of some that ascend."""
    return np.interp(np.linspace(0, len(x) - 1, size), np.arange(len(x)), x)


def in_order(x: Array, like: Array) -> Array:
    """Return numbers in ascending order if others are."""
    return np.sort(x) if is_ordered(like) else x


class Layout(NamedTuple):
    """How inputs and cotangents lie in memory, and the numbers nearest to others that can lie so."""

    inputs: Change
    cotangents: Change
    nearest_inputs: Change = np.asarray
    nearest_cotangents: Change = np.asarray


def strided(x: Array) -> Array:
    """Return equal numbers with others between them."""
    return np.repeat(x[..., None], 2, axis=-1)[..., 0] if x.ndim else x


def equal_rows(x: Array) -> Array:
    """Return an array of the first row alone, as ``expand`` and ``broadcast_to`` do: its stride is 0."""
    if not x.size or not x.ndim or is_ordered(x):
        return x
    return np.lib.stride_tricks.as_strided(x, x.shape, (0, *x.strides[1:]))


def equal_numbers(x: Array) -> Array:
    """Return an array of the first number alone: all strides are 0, as in the cotangent that a sum passes on."""
    return np.lib.stride_tricks.as_strided(x, x.shape, (0,) * x.ndim) if x.size else x


STRIDED = Layout(strided, strided)
BROADCAST = Layout(equal_rows, equal_numbers, equal_rows, equal_numbers)


class LaidOut:
    """A function that gets its arrays in a layout; directions are strided."""

    remark, has_layouts, checks_indices, has_solver, casts_to, draws = "", False, True, False, "", False

    def __init__(self, library: Library, layout: Layout) -> None:
        """Keep both."""
        self._library, self._layout, self.mode, self.dtypes = library, layout, library.mode, library.dtypes

    def leaves(self, arguments: Mapping[str, Tree]) -> dict[str, Array]:
        """Return those of the function."""
        return self._library.leaves(arguments)

    def values(self, leaves: Arrays) -> dict[str, Array]:
        """Return the outputs."""
        return self._library.values(self._all(leaves))

    def vjp(self, leaves: Arrays, output: str, cotangent: Array, inputs: Sequence[str]) -> dict[str, Array]:
        """Return Jᵀ dy by input."""
        return self._library.vjp(self._all(leaves), output, self._layout.cotangents(cotangent), inputs)

    def jvp(self, leaves: Arrays, name: str, tangent: Array, outputs: Sequence[str]) -> dict[str, Array]:
        """Return J tx by output."""
        return self._library.jvp(self._all(leaves), name, strided(tangent), outputs)

    def hessian(self, leaves: Arrays, output: str, inputs: tuple[str, str], dy: Array, v: Array) -> Array:
        """Return ∂/∂b [Jₐᵀ dy] · v."""
        return self._library.hessian(self._all(leaves), output, inputs, self._layout.cotangents(dy), strided(v))

    def source(self, name: str, leaves: Arrays, output: str, cotangent: Array, wrt: str) -> tuple[str, str]:
        """Return that of the function."""
        return self._library.source(name, leaves, output, cotangent, wrt)

    def widened(self) -> None:
        """Return no such function: its casts are not seen."""

    def other(self, *, compiles: bool) -> None:
        """Return no other mode."""

    def _all(self, leaves: Arrays) -> dict[str, Array]:
        return {name: self._layout.inputs(x) for name, x in leaves.items()}
