"""Full Jacobians and Hessians: the rows of a matrix are its products with unit directions.

For an elementwise op they are built from the diagonal, because a unit direction would put 0·∞ = NaN next to every
infinite derivative. For other ops each call computes a bounded chunk of rows.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np

from app.autodiff import derivatives, directions
from app.autodiff.absent import Absent
from app.autodiff.derivatives import Derivative, Derivatives
from app.autodiff.evaluation import Evaluation
from app.autodiff.padded_rows import ROWS
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

    matrix = _Matrix("jacobian", point, point.spec.outputs, derivatives.output_shapes(point), of, wrt)
    return matrix.blocks(product, checkpoint)


def jacobian_of_rows(point: Point, of: Sequence[str], wrt: Sequence[str]) -> Evaluation[Blocks] | None:
    """Return the evaluation of a small Jacobian of an op with rows, which shares calls; ``None`` for any other."""

    def product(dys: Arrays) -> Evaluation[Derivatives]:
        return derivatives.vjp(point, wrt, dys, batched=True, outputs=False).then(itemgetter(1))

    return _Matrix("jacobian", point, point.spec.outputs, point.output_shapes, of, wrt).of_rows(product)


def hessian(point: Point, wrt: Sequence[str], cotangents: Arrays | None, checkpoint: Checkpoint) -> Blocks:
    """Return ∂g_a/∂x_b as blocks ``[a][b]`` of shape ``(*a.shape, *b.shape)``; g is the vjp at ``cotangents``."""

    def product(vectors: Arrays, batched: bool) -> Derivatives:
        return derivatives.hvp(point, wrt, cotangents, vectors, batched=batched).run()

    shapes = {name: x.shape for name, x in point.inputs.items()}
    return _Matrix("hessian", point, point.spec.inputs, shapes, wrt, wrt).blocks(product, checkpoint)


def hessian_of_rows(point: Point, wrt: Sequence[str], cotangents: Arrays | None) -> Evaluation[Blocks] | None:
    """Return the evaluation of a small Hessian of an op with rows, which shares calls; ``None`` for any other."""

    def product(vectors: Arrays) -> Evaluation[Derivatives]:
        return derivatives.hvp(point, wrt, cotangents, vectors, batched=True)

    shapes = {name: x.shape for name, x in point.inputs.items()}
    return _Matrix("hessian", point, point.spec.inputs, shapes, wrt, wrt).of_rows(product)


@dataclass(frozen=True)
class _Matrix:
    """The derivatives of the slots ``of`` a side, which have these shapes, with respect to inputs.

    Raises ``Unprocessable`` if they have too many elements.
    """

    name: str
    point: Point
    side: Side
    shapes: Mapping[str, tuple[int, ...] | None]
    of: Sequence[str]
    wrt: Sequence[str]

    def __post_init__(self) -> None:
        point, wanted = self.point, [self.shapes[y] for y in self.of if y in self.side.differentiable]
        columns = sum(point.inputs[x].size for x in derivatives.differentiable_inputs(point, self.wrt))
        point.admit(columns * sum(math.prod(shape or ()) for shape in wanted), self.name)

    def blocks(self, product: Product, checkpoint: Checkpoint) -> Blocks:
        """Return the blocks from products with the matrix."""
        point, blocks = self.point, Blocks()
        for y in self.of:
            if y not in self.side.differentiable:
                blocks[y] = self._without(y)
                continue
            dtype, shape = DTYPES[self.side.dtypes[y]].numpy, self.shapes[y] or ()
            if point.spec.batching == "elementwise":
                diagonals = product({y: np.ones(shape, dtype)}, False)
                blocks[y] = {x: _diagonal_block(diagonal) for x, diagonal in diagonals.items()}
            else:
                units = _unit_directions(point, dtype, shape, checkpoint)
                blocks[y] = self._block(y, [product({y: unit}, True) for unit in units])
        return blocks

    def of_rows(self, product: Callable[[Arrays], Evaluation[Derivatives]]) -> Evaluation[Blocks] | None:
        """Return the evaluation of the blocks if all products are rows of one call, which other evaluations may share.

        That is so for one slot of a few numbers.
        """
        wanted = [y for y in self.of if y in self.side.differentiable]
        shape = self.shapes[wanted[0]] if len(wanted) == 1 else None
        if shape is None or not 0 < math.prod(shape) <= ROWS or self.point.spec.batching in ("elementwise", "none"):
            return None
        (y,), size = wanted, math.prod(shape)
        evaluation = product({y: np.eye(size, dtype=DTYPES[self.side.dtypes[y]].numpy).reshape(size, *shape)})
        if evaluation.batch_key is None:
            return None
        absent: Blocks = {other: self._without(other) for other in self.of if other != y}
        return evaluation.then(lambda found: {other: absent.get(other) or self._block(y, [found]) for other in self.of})

    def _without(self, y: str) -> Derivatives:
        return dict.fromkeys(self.wrt, derivatives.without_derivative(self.side, y))

    def _block(self, y: str, chunks: Sequence[Derivatives]) -> Derivatives:
        """Join the chunks of rows of the blocks of a slot."""
        return {x: _block(self.point, x, [chunk[x] for chunk in chunks], self.shapes[y] or ()) for x in self.wrt}


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
    rows = max(1, min(size, directions.per_call(point)))
    for start in range(0, size, rows):
        checkpoint()
        stop = min(size, start + rows)
        chunk = np.zeros((stop - start, size), dtype)
        chunk[np.arange(stop - start), np.arange(start, stop)] = 1
        yield chunk.reshape(stop - start, *shape)


def _block(point: Point, x: str, chunks: Sequence[Derivative], rows: tuple[int, ...]) -> Derivative:
    """Join the chunks of rows of the block of an input; without rows, the block is empty."""
    if x not in point.spec.inputs.differentiable:
        return derivatives.without_derivative(point.spec.inputs, x)
    parts = [part for part in chunks if not isinstance(part, Absent)]
    if chunks and not parts:
        return chunks[0]
    empty = np.zeros((0, *point.inputs[x].shape), point.inputs[x].dtype)
    return np.concatenate(parts or [empty]).reshape((*rows, *point.inputs[x].shape))
