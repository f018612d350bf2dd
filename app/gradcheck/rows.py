"""Evaluate an op at many points: outputs and gradients with rows first, in as few TensorFlow calls as possible."""

import math
from dataclasses import dataclass, replace

import numpy as np

from app.autodiff.binding import moved
from app.autodiff.derivatives import Absent, forward, vjp
from app.autodiff.evaluation import CALL_COST, CALL_ELEMENTS, Evaluation, as_found
from app.autodiff.mapped import MappedProgram
from app.autodiff.point import Arrays, Point
from app.autodiff.programs import Kind
from app.runtime import modes
from app.runtime.cancellation import Checkpoint
from app.runtime.op_errors import op_errors
from ops import Array


@dataclass(frozen=True)
class Rows:
    """An op at many points near ``point``: inputs that are not moved keep their values there.

    Rows share a call as the op's batching allows: side by side (elementwise, leading_axis) or in a loop (none).
    """

    point: Point
    checkpoint: Checkpoint

    def forward(self, moved: Arrays) -> Arrays:
        """Return the outputs for moved inputs; all arrays have rows first."""
        return self._run("forward", moved, {})

    def vjp(self, moved: Arrays, cotangents: Arrays) -> Arrays:
        """Return the gradients of all differentiable inputs; all arrays, cotangents included, have rows first."""
        return self._run("vjp", moved, cotangents)

    def _run(self, kind: Kind, moved: Arrays, cotangents: Arrays) -> Arrays:
        count = len(next(iter((*moved.values(), *cotangents.values()))))
        size = sum(x.size for x in self.point.inputs.values()) + sum(dy[0].size for dy in cotangents.values())
        step = max(1, min(CALL_ELEMENTS // (size + 1), CALL_COST // (self.point.cost + 1)))
        parts: list[Arrays] = []
        for start in range(0, count, step):
            self.checkpoint()
            rows = slice(start, min(start + step, count))
            some = {name: x[rows] for name, x in moved.items()}
            parts.append(self._call(kind, some, {name: dy[rows] for name, dy in cotangents.items()}))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _call(self, kind: Kind, moved: Arrays, cotangents: Arrays) -> Arrays:
        count = len(next(iter((*moved.values(), *cotangents.values()))))
        inputs = {
            name: np.asarray(moved[name], x.dtype) if name in moved else np.broadcast_to(x, (count, *x.shape))
            for name, x in self.point.inputs.items()
        }
        if self.point.op.batching == "none":
            return self._loop(kind, inputs, cotangents)
        return self._side_by_side(kind, inputs, cotangents)

    def _side_by_side(self, kind: Kind, inputs: Arrays, cotangents: Arrays) -> Arrays:
        flat = {name: self._join(x) for name, x in inputs.items()}
        point = moved(self.point, flat)
        count = len(next(iter(inputs.values())))
        if kind == "forward":
            results = forward(point).run()
            return {name: y.reshape(count, *self._shape(y.shape, count)) for name, y in results.items()}
        live = point.spec.inputs.live
        dys = {name: self._join(dy) for name, dy in cotangents.items()}
        _, gradients = vjp(point, live, dys, batched=False, outputs=False).run()
        return {
            name: np.zeros_like(inputs[name]) if isinstance(dx, Absent) else dx.reshape(inputs[name].shape)
            for name, dx in gradients.items()
        }

    def _join(self, rows: Array) -> Array:
        """Flatten the rows of an elementwise op; join those of another along the leading axis of the op itself."""
        if self.point.op.batching == "elementwise":
            return rows.reshape(-1)
        return rows.reshape(rows.shape[0] * rows.shape[1], *rows.shape[2:])

    def _shape(self, joined: tuple[int, ...], count: int) -> tuple[int, ...]:
        """Return the shape of one row of an output."""
        if self.point.op.batching == "elementwise":
            return next(iter(self.point.inputs.values())).shape
        return (joined[0] // count, *joined[1:])

    def _loop(self, kind: Kind, inputs: Arrays, cotangents: Arrays) -> Arrays:
        count = len(next(iter(inputs.values())))
        live = self.point.spec.inputs.live if kind == "vjp" else ()
        call = Evaluation(self.point, kind, as_found, wrt=live, cotangents=cotangents or None)
        numbers = Evaluation(replace(self.point, inputs={}), kind, as_found).leaves
        repeated = [np.broadcast_to(value, (count, *value.shape)) for value in numbers]
        leaves = [*inputs.values(), *repeated, *cotangents.values()]
        with op_errors(self.point.op.name):
            results = modes.run(MappedProgram(call.program), "graph", leaves, self.point.spec.device)
        wanted = live or tuple(slot.name for slot in self.point.op.outputs)
        what = "gradients" if live else "outputs"
        values = {name: results.get((what, name)) for name in wanted}
        return {name: np.zeros_like(inputs[name]) if value is None else value for name, value in values.items()}


def numbers_of(point: Point) -> int:
    """Return how many numbers one row has, inputs and outputs together."""
    outputs = [shape or () for shape in point.output_shapes.values()]
    return point.size + sum(map(math.prod, outputs))
