"""A model whose evaluations are counted, up to a budget."""

from collections.abc import Callable, Sequence

from pullback.dtypes import Array
from pullback.servers.model import Arrays, Model, Point


class OutOfBudget(Exception):
    """The evaluations are spent."""


class Meter:
    """Counts the requests to a model, and calls ``tell(done)`` before each, which may raise to end the work."""

    def __init__(self, model: Model, budget: int, tell: Callable[[int], None]) -> None:
        """Allow ``budget`` requests."""
        self.model, self.budget, self.done, self._tell = model, budget, 0, tell

    @property
    def left(self) -> int:
        """The evaluations that are left."""
        return self.budget - self.done

    def values(self, point: Point) -> Arrays:
        """Return the outputs at a point."""
        self._count(1)
        return self.model.values(point)

    def vjp(self, point: Point, output: str, cotangent: Array, inputs: Sequence[str]) -> Arrays:
        """Return Jᵀ dy by input."""
        self._count(len(inputs) if self.model.one_by_one else 1)
        return self.model.vjp(point, output, cotangent, inputs)

    def jvp(self, point: Point, name: str, tangent: Array, outputs: Sequence[str]) -> Arrays:
        """Return J tx by output."""
        self._count(len(outputs) if self.model.one_by_one else 1)
        return self.model.jvp(point, name, tangent, outputs)

    def hessian(self, point: Point, output: str, inputs: tuple[str, str], cotangent: Array, vector: Array) -> Array:
        """Return ∂/∂b [Jₐᵀ dy] · v for inputs (a, b)."""
        self._count(1)
        return self.model.hessian(point, output, inputs, cotangent, vector)

    def _count(self, requests: int) -> None:
        if requests > self.left:
            raise OutOfBudget
        self._tell(self.done)
        self.done += requests
