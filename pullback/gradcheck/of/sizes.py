"""The arguments of a function in other sizes: a kernel may be right for those of its tests alone."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np

from pullback.gradcheck.of.trees import Tree, flatten, rebuild

LARGE = 67
"""A size that is larger than the blocks in which kernels go through small arrays, and no multiple of them."""


def resized(arguments: Mapping[str, Tree], *, shrinks: bool) -> Iterator[list[dict[str, Tree]]]:
    """Yield lists of arguments, of which the first that the function takes is wanted.

    All sizes are larger by one; then the largest is large; then, if it ``shrinks``, the smallest is 1. So equal ones
    stay equal, unless the function takes others of leading dimensions alone, and a matrix with more rows than columns
    stays one. Numbers are repeated: labels and indices stay valid, but for those that shrink.
    """
    shapes = [cast(tuple[int, ...], x.shape) for _, x in flatten(arguments, "") if getattr(x, "ndim", 0)]
    sizes = {size for shape in shapes for size in shape}
    if not sizes or not all(sizes):
        return
    grown = {size: size + 1 for size in sizes}
    leading = {shape[0] for shape in shapes}
    yield [_with(arguments, grown), _with(arguments, {size: size + 1 for size in leading}, axes=1)]
    yield [_with(arguments, {max(sizes): LARGE}), _with(arguments, dict.fromkeys(leading, LARGE), axes=1)]
    if shrinks:
        yield [_with(arguments, {min(sizes): 1})]


def _with(arguments: Mapping[str, Tree], sizes: Mapping[int, int], axes: int | None = None) -> dict[str, Tree]:
    def change(_: str, x: Any) -> Any:
        # To index an array of JAX takes a compilation for each index.
        x = x if hasattr(x, "requires_grad") or not hasattr(x, "shape") else np.asarray(x)
        for axis, size in enumerate(getattr(x, "shape", ())[:axes]):
            x = x[(slice(None),) * axis + (np.arange(sizes.get(size, size)) % size,)]
        return x

    return cast(dict[str, Tree], rebuild(arguments, "", change))
