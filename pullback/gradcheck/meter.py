"""A function whose evaluations are counted, up to a budget, and whose outputs are in units of their size."""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from pullback.dtypes import Array
from pullback.gradcheck.function import Arrays, Function, Point, Request


class OutOfBudget(Exception):
    """The evaluations are spent."""


class Meter:
    """Counts the requests to a function, and calls ``tell(done)`` before each, which may raise to end the work.

    ``units`` are those of the numbers of outputs, powers of two: values and tangents are divided by them, and so are
    the cotangents that the function gets.
    """

    def __init__(self, function: Function, budget: int, tell: Callable[[int], None]) -> None:
        """Allow ``budget`` requests, of which ``spare`` are not planned: they may be spent where an estimate fails."""
        self.function, self.budget, self.done, self._tell = function, budget, 0, tell
        self.spare = 0
        self.units: Mapping[str, Array] = {slot.name: np.ones(slot.shape) for slot in function.outputs}

    @property
    def left(self) -> int:
        """The evaluations that are left."""
        return self.budget - self.done

    @contextmanager
    def of(self, function: Function) -> Generator["Meter"]:
        """Yield a meter for the function in another way, in the same units if it can be, whose requests count here."""
        before = self.done
        other = Meter(function, self.left, lambda done: self._tell(before + done))
        if [slot.shape for slot in function.outputs] == [slot.shape for slot in self.function.outputs]:
            other.units = self.units
        try:
            yield other
        finally:
            self.done += other.done

    def values(self, point: Point) -> Arrays:
        """Return the outputs at a point."""
        self._count(1)
        return self._in_units(self.function.values(point))

    def vjp(self, point: Point, output: str, cotangent: Array, inputs: Sequence[str]) -> Arrays:
        """Return Jᵀ dy by input."""
        self._count(len(inputs) if self.function.one_by_one else 1)
        return self.function.vjp(point, output, cotangent / self.units[output], inputs)

    def jvp(self, point: Point, name: str, tangent: Array, outputs: Sequence[str]) -> Arrays:
        """Return J tx by output."""
        self._count(len(outputs) if self.function.one_by_one else 1)
        return self._in_units(self.function.jvp(point, name, tangent, outputs))

    def hessian(self, point: Point, output: str, inputs: tuple[str, str], cotangent: Array, vector: Array) -> Array:
        """Return ∂/∂b [Jₐᵀ dy] · v for inputs (a, b)."""
        self._count(1)
        return self.function.hessian(point, output, inputs, cotangent / self.units[output], vector)

    def request(self, point: Point, output: str, name: str, cotangent: Array) -> Request:
        """Return the request for the gradient with respect to one input, which is not sent."""
        return self.function.request(point, output, name, cotangent / self.units[output])

    def _in_units(self, outputs: Arrays) -> Arrays:
        return {name: value / self.units[name] for name, value in outputs.items()}

    def _count(self, requests: int) -> None:
        if requests > self.left:
            raise OutOfBudget
        self._tell(self.done)
        self.done += requests
