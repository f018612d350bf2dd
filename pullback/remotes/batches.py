"""Batches of calls as one call, for the vmap of a framework."""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from pullback.remotes.derivatives import Derivative

Call: TypeAlias = Callable[..., Sequence[Any]]
"""``call(*arrays, batched=..., points=...)`` evaluates a derivative; the flags are those of ``evaluate``."""

MOST_COPIED = 1 << 26
"""How many bytes of arrays that all points share may be copied for them; beyond it, each point has its own call."""


def batch(
    p: Derivative,
    arrays: Sequence[Any],
    dims: Sequence[int | None],
    size: Any,
    *,
    batched: bool,
    points: bool,
    call: Call,
    xp: Any,
) -> tuple[list[Any], int] | None:
    """Return the results of a batch of calls, and the axis that the batch has in each; ``None`` if it is not one call.

    Each array has the batch in the axis ``dims``, or is the same for all. If only the directions of the last derivation
    have the batch, it becomes their axis of directions. If the op is elementwise or its leading axes are independent,
    and no input that all rows use has the batch, it becomes a part of the arrays. Otherwise it becomes the axis of
    points; it is not one call only if what all points share is too large to be copied for each. ``xp`` is the module of
    the framework that has ``moveaxis`` and ``broadcast_to``; PyTensor's ``size`` may be a variable.
    """
    count = p.parent.arity if p.path else p.arity
    first = int(points)
    if p.path and all(dim is None for dim in dims[:count]):
        many = [_with_batch(x, dim, size, first, xp) for x, dim in zip(arrays[count:], dims[count:], strict=True)]
        if not batched:
            return list(call(*arrays[:count], *many, batched=True, points=points)), first
        found = call(*arrays[:count], *(_merged(x, first) for x in many), batched=True, points=points)
        return [_split(x, first, many[0].shape[first : first + 2]) for x in found], first
    if points or p.batching == "none" or any(dims[i] is not None for i in p.shared_inputs):
        copied = sum(_bytes(x) for x, dim in zip(arrays, dims, strict=True) if dim is None)
        if isinstance(size, int) and copied * size > MOST_COPIED:
            return None
        many = [_with_batch(x, dim, size, 0, xp) for x, dim in zip(arrays, dims, strict=True)]
        if not points:
            return list(call(*many, batched=batched, points=True)), 0
        found = call(*(_merged(x, 0) for x in many), batched=batched, points=True)
        return [_split(x, 0, many[0].shape[:2]) for x in found], 0
    # The batch becomes an axis of all arrays, or a part of their first axis; directions may have an axis before it.
    moved = list(arrays)
    is_merged, sizes = p.batching == "leading_axis", ()
    for i in (i for i in range(len(arrays)) if i not in p.shared_inputs):
        axis = int(batched and i >= count)
        moved[i] = _with_batch(arrays[i], dims[i], size, axis, xp)
        if is_merged:
            sizes = moved[i].shape[axis : axis + 2]
            moved[i] = _merged(moved[i], axis)
    found = list(call(*moved, batched=batched, points=False))
    return [_split(x, int(batched), sizes) if is_merged else x for x in found], int(batched)


def _bytes(x: Any) -> int:
    """Return an upper bound of the bytes of an array, whose sizes may not be known yet."""
    return 8 * math.prod(size for size in x.shape if isinstance(size, int))


def _with_batch(x: Any, dim: int | None, size: int, axis: int, xp: Any) -> Any:
    """Return an array with the batch at an axis."""
    if dim is None:
        x, dim = xp.broadcast_to(x, (size, *x.shape)), 0
    return x if dim == axis else xp.moveaxis(x, dim, axis)


def _merged(x: Any, axis: int) -> Any:
    """Return an array with an axis and the next one merged."""
    return x.reshape((*x.shape[:axis], x.shape[axis] * x.shape[axis + 1], *x.shape[axis + 2 :]))


def _split(x: Any, axis: int, sizes: Sequence[int]) -> Any:
    """Return an array with an axis split into several."""
    return x.reshape((*x.shape[:axis], *sizes, *x.shape[axis + 1 :]))
