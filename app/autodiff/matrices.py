"""Full Jacobians and Hessians, built from vjps and hvps with unit directions.

For an elementwise op they are built from the diagonal, because a unit direction would put 0·∞ = NaN next to every
infinite derivative. For other ops each call computes a bounded chunk of rows.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from app.autodiff.derivatives import Absent, Derivative, Derivatives, hvp, live_inputs, output_shapes, vjp
from app.autodiff.evaluation import rows_per_call
from app.autodiff.point import Point
from app.runtime.cancellation import Checkpoint
from app.tensors.dtypes import DTYPES
from ops import Array

Blocks: TypeAlias = dict[str, Derivatives]


def jacobian(point: Point, of: Sequence[str], wrt: Sequence[str], checkpoint: Checkpoint) -> Blocks:
    """Return ∂y/∂x as blocks ``[output][input]`` of shape ``(*y.shape, *x.shape)``."""
    live, shapes = point.spec.outputs.live, output_shapes(point)
    sizes = (math.prod(shapes[y]) * point.inputs[x].size for y, x in product(of, live_inputs(point, wrt)) if y in live)
    point.admit(sum(sizes), "jacobian")
    blocks: Blocks = {}
    for y in of:
        if y not in live:
            blocks[y] = dict.fromkeys(wrt, Absent.NOT_DIFFERENTIABLE)
        elif point.op.batching == "elementwise":
            ones = np.ones(shapes[y], _dtype(point, y))
            _, diagonals = vjp(point, wrt, {y: ones}, batched=False, outputs=False).run()
            blocks[y] = {x: _diagonal_block(diagonal) for x, diagonal in diagonals.items()}
        else:
            units = _unit_directions(point, _dtype(point, y), shapes[y], checkpoint)
            chunks = [vjp(point, wrt, {y: unit}, batched=True, outputs=False).run()[1] for unit in units]
            blocks[y] = _stack(point, chunks, wrt, shapes[y])
    return blocks


def hessian(
    point: Point,
    wrt: Sequence[str],
    cotangents: Mapping[str, Array] | None,
    checkpoint: Checkpoint,
) -> Blocks:
    """Return ∂g_a/∂x_b as blocks ``[a][b]`` of shape ``(*a.shape, *b.shape)``; g is the vjp at ``cotangents``."""
    live, shapes = live_inputs(point, wrt), {name: x.shape for name, x in point.inputs.items()}
    point.admit(sum(math.prod(shapes[a]) * math.prod(shapes[b]) for a, b in product(live, live)), "hessian")
    blocks: Blocks = {}
    for a in wrt:
        if a not in live:
            blocks[a] = dict.fromkeys(wrt, Absent.NOT_DIFFERENTIABLE)
        elif point.op.batching == "elementwise":
            diagonals = hvp(point, wrt, cotangents, {a: np.ones_like(point.inputs[a])}, batched=False).run()
            blocks[a] = {b: _diagonal_block(diagonal) for b, diagonal in diagonals.items()}
        else:
            units = _unit_directions(point, point.inputs[a].dtype, shapes[a], checkpoint)
            chunks = [hvp(point, wrt, cotangents, {a: unit}, batched=True).run() for unit in units]
            blocks[a] = _stack(point, chunks, wrt, shapes[a])
    return blocks


def _dtype(point: Point, output: str) -> np.dtype[Any]:
    return DTYPES[point.spec.outputs.dtypes[output]].numpy


def _diagonal_block(diagonal: Derivative) -> Derivative:
    """Return the block of an elementwise op: the diagonal, and exact zeros elsewhere."""
    if isinstance(diagonal, Absent):
        return diagonal
    block = np.zeros((diagonal.size, diagonal.size), diagonal.dtype)
    np.fill_diagonal(block, diagonal.ravel())
    return block.reshape((*diagonal.shape, *diagonal.shape))


def _unit_directions(
    point: Point, dtype: np.dtype[Any], shape: tuple[int, ...], checkpoint: Checkpoint
) -> Iterator[Array]:
    """Yield the unit tensors of a shape, in chunks along a leading axis that bound each call's work.

    Calls ``checkpoint`` before each chunk.
    """
    size = math.prod(shape)
    rows = max(1, min(size, rows_per_call(point)))
    for start in range(0, size, rows):
        checkpoint()
        stop = min(size, start + rows)
        chunk = np.zeros((stop - start, size), dtype)
        chunk[np.arange(stop - start), np.arange(start, stop)] = 1
        yield chunk.reshape(stop - start, *shape)


def _stack(point: Point, chunks: Sequence[Derivatives], wrt: Sequence[str], rows: tuple[int, ...]) -> Derivatives:
    """Join the chunks of rows into one block per input; without rows, the block is empty."""
    live = point.spec.inputs.live
    blocks: Derivatives = {}
    for name in wrt:
        shape = (*rows, *point.inputs[name].shape)
        parts = [part for part in (chunk[name] for chunk in chunks) if not isinstance(part, Absent)]
        if name not in live:
            blocks[name] = Absent.NOT_DIFFERENTIABLE
        elif chunks and not parts:
            blocks[name] = Absent.DISCONNECTED
        else:
            empty = np.zeros(shape, point.inputs[name].dtype)
            blocks[name] = np.concatenate(parts).reshape(shape) if parts else empty
    return blocks
