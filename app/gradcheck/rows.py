"""Evaluate an op at many points: outputs and gradients with rows first, in as few TensorFlow calls as possible."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

import numpy as np

from app.autodiff.binding import moved
from app.autodiff.derivatives import gradient, second_order_values, values_of
from app.autodiff.evaluation import CALL_COST, CALL_ELEMENTS, Evaluation
from app.autodiff.point import Arrays, Point
from app.autodiff.programs import MappedProgram
from app.runtime import modes
from app.runtime.cancellation import Checkpoint
from app.runtime.modes import Key
from app.runtime.op_errors import op_errors
from ops import Array

K = TypeVar("K", bound=str | Key)
Evaluate: TypeAlias = Callable[[Point, Arrays, Arrays], Evaluation[dict[K, Array]]]
"""Returns an evaluation at a point, for cotangents and vectors; its results have a leading axis if these have."""


@dataclass(frozen=True)
class Rows:
    """An op at many points near ``point``: inputs that are not moved keep their values there.

    Rows share a call as the op's batching allows: side by side (elementwise, leading_axis) or in a loop (none).
    """

    point: Point
    checkpoint: Checkpoint

    def forward(self, moved: Arrays) -> dict[str, Array]:
        """Return the outputs for moved inputs; all arrays have rows first."""
        return self._run(lambda point, dys, vectors: values_of(point), moved, {}, {})

    def vjp(self, moved: Arrays, cotangents: Arrays) -> dict[str, Array]:
        """Return the gradients of all differentiable inputs; all arrays, cotangents included, have rows first."""
        return self._run(lambda point, dys, vectors: gradient(point, dys), moved, cotangents, {})

    def second(self, moved: Arrays, cotangents: Arrays, vectors: Arrays) -> dict[Key, Array]:
        """Return the values of ``app.autodiff.derivatives.second_order_values``; all arrays have rows first."""
        return self._run(second_order_values, moved, cotangents, vectors)

    def _run(self, evaluate: Evaluate[K], moved: Arrays, cotangents: Arrays, vectors: Arrays) -> dict[K, Array]:
        count = len(next(iter((*moved.values(), *cotangents.values()))))
        size = sum(x.size for x in self.point.inputs.values()) + sum(dy[0].size for dy in cotangents.values())
        step = max(1, min(CALL_ELEMENTS // (size + 1), CALL_COST // (self.point.cost + 1)))
        parts: list[dict[K, Array]] = []
        for start in range(0, count, step):
            self.checkpoint()
            rows = slice(start, min(start + step, count))
            some, dys, vs = ({name: x[rows] for name, x in named.items()} for named in (moved, cotangents, vectors))
            parts.append(self._call(evaluate, some, dys, vs))
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}

    def _call(self, evaluate: Evaluate[K], moved: Arrays, cotangents: Arrays, vectors: Arrays) -> dict[K, Array]:
        count = len(next(iter((*moved.values(), *cotangents.values()))))
        inputs = {
            name: np.asarray(moved[name], x.dtype) if name in moved else np.broadcast_to(x, (count, *x.shape))
            for name, x in self.point.inputs.items()
        }
        call = self._loop if self.point.op.batching == "none" else self._side_by_side
        return call(evaluate, count, inputs, cotangents, vectors)

    def _side_by_side(
        self, evaluate: Evaluate[K], count: int, inputs: Arrays, cotangents: Arrays, vectors: Arrays
    ) -> dict[K, Array]:
        flat, dys, vs = ({name: self._join(x) for name, x in named.items()} for named in (inputs, cotangents, vectors))
        found = evaluate(moved(self.point, flat), dys, vs).run()
        return {key: self._split(value, count) for key, value in found.items()}

    def _loop(
        self, evaluate: Evaluate[K], count: int, inputs: Arrays, cotangents: Arrays, vectors: Arrays
    ) -> dict[K, Array]:
        call, device = evaluate(replace(self.point, inputs=inputs), cotangents, vectors), self.point.spec.device
        numbers = range(len(inputs), len(inputs) + len(self.point.spec.numbers))
        leaves = [np.broadcast_to(x, (count,)) if i in numbers else x for i, x in enumerate(call.leaves)]
        with op_errors(self.point.op.name):
            trace = modes.trace_of(call.program, "graph", [rows[0] for rows in leaves], device)
            return call.finish(modes.run(MappedProgram(call.program, trace), "graph", leaves, device))

    def _join(self, rows: Array) -> Array:
        """Flatten the rows of an elementwise op; join those of another along the leading axis of the op itself."""
        if self.point.op.batching == "elementwise":
            return rows.reshape(-1)
        return rows.reshape(rows.shape[0] * rows.shape[1], *rows.shape[2:])

    def _split(self, joined: Array, count: int) -> Array:
        """Return joined rows with rows first."""
        if self.point.op.batching == "elementwise":
            return joined.reshape(count, *next(iter(self.point.inputs.values())).shape)
        return joined.reshape(count, joined.shape[0] // count, *joined.shape[1:])


def numbers_of(point: Point) -> int:
    """Return how many numbers one row has, inputs and outputs together."""
    outputs = [shape or () for shape in point.output_shapes.values()]
    return point.size + sum(map(math.prod, outputs))
