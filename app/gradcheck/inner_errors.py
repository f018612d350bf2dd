"""The values of an op at a point with random errors inside the op: how far its roundings may move them."""

from dataclasses import dataclass, replace

import numpy as np

from app.autodiff.binding import moved
from app.autodiff.derivatives import Kind, values_up_to
from app.autodiff.point import Arrays, Point
from app.autodiff.programs import MappedProgram
from app.autodiff.random_errors import NO_LOSSES, Losses
from app.autodiff.random_rounding import RandomRounding
from app.runtime import modes
from app.runtime.modes import Key
from app.runtime.op_errors import op_errors
from ops import Array


@dataclass(frozen=True)
class InnerErrors:
    """The values of ``app.autodiff.derivatives.values_up_to`` at a point, with random errors inside the op.

    Numbers may also be off by ``losses``. There are ``draws`` sets of values for each relative size of the errors, with
    the same random numbers for all sizes.
    """

    last: Kind
    point: Point
    cotangents: Arrays
    vectors: Arrays
    draws: int
    losses: Losses = NO_LOSSES

    def values(self, *scales: float) -> list[list[dict[Key, Array]]]:
        """Return the sets of values with errors of each relative size; one set for 0, without errors.

        Raises ``Unprocessable`` or ``OpFailed`` if the op rejects numbers that are off, as in an assertion.
        """
        with op_errors(self.point.op.name):
            if self.point.spec.batching == "elementwise":
                return [self._side_by_side(scale) for scale in scales]
            return self._loop(scales)

    def _side_by_side(self, scale: float) -> list[dict[Key, Array]]:
        """Evaluate copies of the point in one call: each number has different errors."""
        count = self.draws if scale else 1
        inputs, dys, vs = (
            {name: np.broadcast_to(x.ravel(), (count, x.size)).ravel() for name, x in named.items()}
            for named in (self.point.inputs, self.cotangents, self.vectors)
        )
        call = values_up_to(self.last, moved(self.point, inputs), dys, vs)
        program = RandomRounding(call.program, self.losses)
        leaves = [*call.leaves, np.array(scale), np.array(0)]
        values = call.finish(modes.run(program, "graph", leaves, self.point.spec.device))
        shape = next(iter(self.point.inputs.values())).shape
        parts = {key: value.reshape(count, *shape) for key, value in values.items()}
        return [{key: part[i] for key, part in parts.items()} for i in range(count)]

    def _loop(self, scales: tuple[float, ...]) -> list[list[dict[Key, Array]]]:
        """Evaluate the point again and again, in one call."""
        draws = [(scale, draw) for scale in scales for draw in range(self.draws if scale else 1)]
        inputs, dys, vs = (
            {name: np.broadcast_to(x, (len(draws), *x.shape)) for name, x in named.items()}
            for named in (self.point.inputs, self.cotangents, self.vectors)
        )
        call = values_up_to(self.last, replace(self.point, inputs=inputs), dys, vs)
        program, device = RandomRounding(call.program, self.losses), self.point.spec.device
        numbers = range(len(inputs), len(inputs) + len(self.point.spec.numbers))
        leaves = [np.broadcast_to(x, (len(draws),)) if i in numbers else x for i, x in enumerate(call.leaves)]
        leaves += [np.array(column) for column in zip(*draws, strict=True)]
        trace = modes.trace_of(program, "graph", [rows[0] for rows in leaves], device)
        values = call.finish(modes.run(MappedProgram(program, trace), "graph", leaves, device))
        every = iter({key: value[i] for key, value in values.items()} for i in range(len(draws)))
        return [[next(every) for _ in range(self.draws if scale else 1)] for scale in scales]
