"""Evaluate an op at many points: outputs and gradients with rows first, in as few TensorFlow calls as possible."""

import math
from dataclasses import dataclass, replace

import numpy as np

from app.autodiff.binding import moved
from app.autodiff.derivatives import Absent, forward, second, vjp
from app.autodiff.evaluation import CALL_COST, CALL_ELEMENTS, Evaluation, as_found
from app.autodiff.point import Arrays, Point
from app.autodiff.programs import Kind
from app.autodiff.variants import MappedProgram
from app.runtime import modes
from app.runtime.cancellation import Checkpoint
from app.runtime.modes import Key
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
        return {str(name): y for (_, name), y in self._run("forward", moved, {}, {}).items()}

    def vjp(self, moved: Arrays, cotangents: Arrays) -> Arrays:
        """Return the gradients of all differentiable inputs; all arrays, cotangents included, have rows first."""
        return {str(name): dx for (_, name), dx in self._run("vjp", moved, cotangents, {}).items()}

    def second(self, moved: Arrays, cotangents: Arrays, vectors: Arrays) -> dict[Key, Array]:
        """Return the values of ``app.autodiff.derivatives.second``; all arrays have rows first."""
        return self._run("second", moved, cotangents, vectors)

    def _run(self, kind: Kind, moved: Arrays, cotangents: Arrays, vectors: Arrays) -> dict[Key, Array]:
        count = len(next(iter((*moved.values(), *cotangents.values()))))
        size = sum(x.size for x in self.point.inputs.values()) + sum(dy[0].size for dy in cotangents.values())
        step = max(1, min(CALL_ELEMENTS // (size + 1), CALL_COST // (self.point.cost + 1)))
        parts: list[dict[Key, Array]] = []
        for start in range(0, count, step):
            self.checkpoint()
            rows = slice(start, min(start + step, count))
            some, dys, vs = ({name: x[rows] for name, x in named.items()} for named in (moved, cotangents, vectors))
            parts.append(self._call(kind, some, dys, vs))
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}

    def _call(self, kind: Kind, moved: Arrays, cotangents: Arrays, vectors: Arrays) -> dict[Key, Array]:
        count = len(next(iter((*moved.values(), *cotangents.values()))))
        inputs = {
            name: np.asarray(moved[name], x.dtype) if name in moved else np.broadcast_to(x, (count, *x.shape))
            for name, x in self.point.inputs.items()
        }
        if self.point.op.batching == "none":
            return self._loop(kind, inputs, cotangents, vectors)
        return self._side_by_side(kind, inputs, cotangents, vectors)

    def _side_by_side(self, kind: Kind, inputs: Arrays, cotangents: Arrays, vectors: Arrays) -> dict[Key, Array]:
        flat = {name: self._join(x) for name, x in inputs.items()}
        point = moved(self.point, flat)
        count = len(next(iter(inputs.values())))
        if kind == "forward":
            return {("outputs", name): self._split(y, count) for name, y in forward(point).run().items()}
        dys = {name: self._join(dy) for name, dy in cotangents.items()}
        if kind == "second":
            results = second(point, dys, {name: self._join(v) for name, v in vectors.items()})
            return {key: self._split(value, count) for key, value in results.items()}
        _, gradients = vjp(point, point.spec.inputs.live, dys, batched=False, outputs=False).run()
        return {
            ("gradients", name): np.zeros_like(inputs[name]) if isinstance(dx, Absent) else self._split(dx, count)
            for name, dx in gradients.items()
        }

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

    def _loop(self, kind: Kind, inputs: Arrays, cotangents: Arrays, vectors: Arrays) -> dict[Key, Array]:
        count = len(next(iter(inputs.values())))
        live = self.point.spec.inputs.live if kind == "vjp" else ()
        call = Evaluation(
            self.point, kind, as_found, wrt=live, cotangents=cotangents or None, along=vectors, outputs=kind == "second"
        )
        numbers = Evaluation(replace(self.point, inputs={}), kind, as_found).leaves
        repeated = [np.broadcast_to(value, (count, *value.shape)) for value in numbers]
        leaves = [*inputs.values(), *repeated, *cotangents.values(), *vectors.values()]
        device = self.point.spec.device
        with op_errors(self.point.op.name):
            trace = modes.trace_of(call.program, "graph", [rows[0] for rows in leaves], device)
            results = modes.run(MappedProgram(call.program, trace), "graph", leaves, device)
        found = {key: value for key, value in results.items() if value is not None}
        zeros = {("gradients", name): inputs[name] for name in (live or vectors)}
        zeros |= {("products", name): v for name, v in vectors.items()}
        zeros |= {("slots", name): dy for name, dy in cotangents.items() if vectors}
        return {key: np.zeros_like(zero) for key, zero in zeros.items() if key not in found} | found


def numbers_of(point: Point) -> int:
    """Return how many numbers one row has, inputs and outputs together."""
    outputs = [shape or () for shape in point.output_shapes.values()]
    return point.size + sum(map(math.prod, outputs))
