"""Full Jacobians and Hessians: the rows of a matrix are its products with unit directions.

For an elementwise op they are built from the diagonal, because a unit direction would put 0·∞ = NaN next to every
infinite derivative. For other ops each call computes a bounded chunk of rows.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from app.autodiff import derivatives
from app.autodiff.derivatives import Absent, Derivative, Derivatives, Shapes
from app.autodiff.evaluation import rows_per_call
from app.autodiff.point import Arrays, Point, Side
from app.runtime.cancellation import Checkpoint
from app.tensors.dtypes import DTYPES
from ops import Array

Blocks: TypeAlias = dict[str, Derivatives]
Product: TypeAlias = Callable[[Arrays, bool], Derivatives]
"""Returns the product of a direction with a matrix; if the flag is set, of each of those along a leading axis."""


def jacobian(point: Point, of: Sequence[str], wrt: Sequence[str], checkpoint: Checkpoint) -> Blocks:
    """Return ∂y/∂x as blocks ``[output][input]`` of shape ``(*y.shape, *x.shape)``."""

    def product(dys: Arrays, batched: bool) -> Derivatives:
        return derivatives.vjp(point, wrt, dys, batched=batched, outputs=False).run()[1]

    shapes = derivatives.output_shapes(point)
    return _blocks("jacobian", point, point.spec.outputs, shapes, of, wrt=wrt, product=product, checkpoint=checkpoint)


def hessian(point: Point, wrt: Sequence[str], cotangents: Arrays | None, checkpoint: Checkpoint) -> Blocks:
    """Return ∂g_a/∂x_b as blocks ``[a][b]`` of shape ``(*a.shape, *b.shape)``; g is the vjp at ``cotangents``."""

    def product(vectors: Arrays, batched: bool) -> Derivatives:
        return derivatives.hvp(point, wrt, cotangents, vectors, batched=batched).run()

    shapes = {name: x.shape for name, x in point.inputs.items()}
    return _blocks("hessian", point, point.spec.inputs, shapes, wrt, wrt=wrt, product=product, checkpoint=checkpoint)


def _blocks(
    name: str,
    point: Point,
    side: Side,
    shapes: Shapes,
    of: Sequence[str],
    *,
    wrt: Sequence[str],
    product: Product,
    checkpoint: Checkpoint,
) -> Blocks:
    """Return the derivatives of the slots ``of`` a side, which have these shapes, from products with the matrix.

    Raises ``Unprocessable`` if they have too many elements.
    """
    columns = sum(point.inputs[x].size for x in derivatives.differentiable_inputs(point, wrt))
    point.admit(columns * sum(math.prod(shapes[y]) for y in of if y in side.differentiable), name)
    blocks: Blocks = {}
    for y in of:
        dtype = DTYPES[side.dtypes[y]].numpy
        if y not in side.differentiable:
            blocks[y] = dict.fromkeys(wrt, Absent.NOT_DIFFERENTIABLE)
        elif point.spec.batching == "elementwise":
            diagonals = product({y: np.ones(shapes[y], dtype)}, False)
            blocks[y] = {x: _diagonal_block(diagonal) for x, diagonal in diagonals.items()}
        else:
            units = _unit_directions(point, dtype, shapes[y], checkpoint)
            chunks = [product({y: unit}, True) for unit in units]
            blocks[y] = {x: _block(point, x, [chunk[x] for chunk in chunks], shapes[y]) for x in wrt}
    return blocks


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


def _block(point: Point, x: str, chunks: Sequence[Derivative], rows: tuple[int, ...]) -> Derivative:
    """Join the chunks of rows of the block of an input; without rows, the block is empty."""
    if x not in point.spec.inputs.differentiable:
        return Absent.NOT_DIFFERENTIABLE
    parts = [part for part in chunks if not isinstance(part, Absent)]
    if chunks and not parts:
        return Absent.DISCONNECTED
    empty = np.zeros((0, *point.inputs[x].shape), point.inputs[x].dtype)
    return np.concatenate(parts or [empty]).reshape((*rows, *point.inputs[x].shape))
