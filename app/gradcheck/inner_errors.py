"""The values of an op at a point with random errors inside the op: how far its roundings may move them."""

from dataclasses import dataclass, replace

import numpy as np

from app.autodiff.binding import moved
from app.autodiff.derivatives import Kind, values_up_to
from app.autodiff.point import Arrays, Point
from app.autodiff.programs import MappedProgram
from app.autodiff.random_errors import NO_LOSSES, Losses
from app.autodiff.random_rounding import RandomRounding
from app.gradcheck.rows import is_joinable
from app.runtime import modes
from app.runtime.kernels import ALONG_AXIS, KERNELS
from app.runtime.modes import Key
from app.runtime.op_errors import op_errors
from ops import Array

# The most numbers of inputs that are evaluated side by side.
MAX_JOINED = 1 << 18
OF_ALL_ROWS = frozenset(name for name, kernel in KERNELS.items() if kernel.rounding == "cumulative") - ALONG_AXIS


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
            if self.point.spec.batching == "elementwise" or self._can_join():
                return [self._side_by_side(scale) for scale in scales]
            return self._loop(scales)

    def _can_join(self) -> bool:
        """Return whether few copies of the point are rows of one; the errors of segments grow with all rows."""
        if not is_joinable(self.point.spec) or self.draws * self.point.size > MAX_JOINED:
            return False
        call = values_up_to(self.last, self.point, self.cotangents, self.vectors)
        trace = modes.trace_of(call.program, "graph", call.leaves, self.point.spec.device)
        return trace.kernels.isdisjoint(OF_ALL_ROWS)

    def _side_by_side(self, scale: float) -> list[dict[Key, Array]]:
        """Evaluate copies of the point in one call: each number has different errors."""
        count = self.draws if scale else 1
        inputs, dys, vs = (
            {name: self._copies(x, count) for name, x in named.items()}
            for named in (self.point.inputs, self.cotangents, self.vectors)
        )
        call = values_up_to(self.last, moved(self.point, inputs), dys, vs)
        program = RandomRounding(call.program, self.losses)
        leaves = [*call.leaves, np.array(scale), np.array(0)]
        values = call.finish(modes.run(program, "graph", leaves, self.point.spec.device))
        if self.point.spec.batching == "elementwise":
            shape = next(iter(self.point.inputs.values())).shape
            values = {key: value.reshape(count, *shape) for key, value in values.items()}
        elif self.point.spec.batching == "leading_axis":
            values = {key: value.reshape(count, len(value) // count, *value.shape[1:]) for key, value in values.items()}
        return [{key: value[i] for key, value in values.items()} for i in range(count)]

    def _copies(self, x: Array, count: int) -> Array:
        """Return copies of an array as rows of one: in its leading axis, or in another before it."""
        copies = np.broadcast_to(x, (count, *x.shape))
        match self.point.spec.batching:
            case "elementwise":
                return copies.ravel()
            case "leading_axis":
                return copies.reshape(-1, *x.shape[1:])
            case _:
                return copies

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
