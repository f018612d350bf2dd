"""Batches of calls as one call, for the vmap of a framework."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from pullback.remotes.derivatives import Derivative

Call: TypeAlias = Callable[..., Sequence[Any]]
"""``call(*arrays, batched=...)`` evaluates a derivative; ``batched`` is that of ``evaluate``."""


def batch(
    p: Derivative, arrays: Sequence[Any], dims: Sequence[int | None], size: int, *, batched: bool, call: Call, xp: Any
) -> tuple[list[Any], int] | None:
    """Return the results of a batch of calls, and the axis that the batch has in each; ``None`` if it is not one call.

    Each array has the batch in the axis ``dims``, or is the same for all. It is one call if only the directions of the
    last derivation have the batch, or if the op is elementwise or its leading axes are independent, and no input that
    all rows use has the batch. ``xp`` is the module of the framework that has ``moveaxis`` and ``broadcast_to``.
    """
    count = p.parent.arity if p.path else p.arity
    if p.path and all(dim is None for dim in dims[:count]):
        many = [_with_batch(x, dim, size, 0, xp) for x, dim in zip(arrays[count:], dims[count:], strict=True)]
        if not batched:
            return list(call(*arrays[:count], *many, batched=True)), 0
        found = call(*arrays[:count], *(_merged(x, 0) for x in many), batched=True)
        return [_split(x, 0, many[0].shape[:2]) for x in found], 0
    if p.batching == "none" or any(dims[i] is not None for i in p.shared_inputs):
        return None
    # The batch becomes an axis of all arrays, or a part of their first axis; directions may have an axis before it.
    moved = list(arrays)
    is_merged, sizes = p.batching == "leading_axis", ()
    for i in (i for i in range(len(arrays)) if i not in p.shared_inputs):
        axis = int(batched and i >= count)
        moved[i] = _with_batch(arrays[i], dims[i], size, axis, xp)
        if is_merged:
            sizes = moved[i].shape[axis : axis + 2]
            moved[i] = _merged(moved[i], axis)
    found = list(call(*moved, batched=batched))
    return [_split(x, int(batched), sizes) if is_merged else x for x in found], int(batched)


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
