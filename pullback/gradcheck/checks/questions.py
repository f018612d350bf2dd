"""What a function is asked about one output at a point: values, and derivatives with a cotangent and a direction."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from pullback.dtypes import Array
from pullback.gradcheck import floats
from pullback.gradcheck.function import Arrays, Point, Request
from pullback.gradcheck.meter import Meter
from pullback.gradcheck.sample import NOISES, RATIO, Sample, largest_of, rounding

Along = Mapping[str, Array]
"""A direction, by input."""


Kind = Literal["values", "gradient", "tangent", "Hessian"]


class Key(NamedTuple):
    """A question: for values, or for a derivative in one ``input``."""

    kind: Kind
    input: str = ""


VALUES = Key("values")
ORDERS = {"values": 0, "gradient": 1, "tangent": 1, "Hessian": 2}
"""The order of the derivatives of each kind."""


@dataclass(frozen=True)
class Questions:
    """The questions about one ``output``. Tangents and Hessians are along ``direction``, in one input each."""

    meter: Meter
    sample: Sample
    output: str
    direction: Along

    def moved(self, along: Along, step: float, point: Point | None = None) -> Point:
        """Return a point, or that of the sample, with some inputs moved, in their dtypes."""
        point = self.sample.point if point is None else point
        inputs: dict[str, Array] = dict(point.inputs)
        for slot in self.sample.inputs:
            if slot.name in along:
                x = inputs[slot.name] + step * along[slot.name]
                inputs[slot.name] = floats.rounded(x, slot.dtype)
        return replace(point, inputs=inputs)

    def along(self, key: Key) -> Along:
        """Return the direction in which a derivative is one of ``whole``; that of all inputs for values."""
        return {key.input: self.direction[key.input]} if key.input else self.direction

    def both(self, first: Point, second: Point) -> tuple[dict[Key, Array], dict[Key, Array]]:
        """Return the answers to all questions that the function takes, each at two points, one after the other."""
        function, names, points = self.meter.function, list(self.direction), (first, second)
        keys = [VALUES]
        keys += [Key("gradient", name) for name in names if function.one_by_one]
        keys += [Key("tangent", name) for name in names if function.has_jvp]
        keys += [Key("Hessian", name) for name in names if function.has_hessian]
        found = [[self.ask(key, point) for point in points] for key in keys]
        if not function.one_by_one:
            gradients = [self._gradients(point, names) for point in points]
            keys += [Key("gradient", name) for name in names]
            found += [[each[name] for each in gradients] for name in names]
        here, there = (dict(zip(keys, answers, strict=True)) for answers in zip(*found, strict=True))
        return here, there

    def ask(self, key: Key, point: Point) -> Array:
        """Return one answer."""
        meter, output, name = self.meter, self.output, key.input
        match key.kind:
            case "values":
                return meter.values(point)[output]
            case "gradient":
                return self._gradients(point, [name])[name]
            case "tangent":
                return meter.jvp(point, name, self.direction[name], [output])[output]
            case "Hessian":
                return meter.hessian(point, output, (name, name), self._cotangent, self.direction[name])

    def rounding(self, answer: Array) -> float:
        """Return how far rounding may move a number of an answer."""
        slots = (*self.sample.inputs, *self.sample.outputs)
        return rounding(max(floats.eps(slot.dtype) for slot in slots)) * largest_of(answer)

    def bar(self, key: Key, answer: Array) -> Array:
        """Return how far each number of an answer may be off."""
        if key.kind == "values":
            return NOISES * self.sample.noise[self.output] + self.sample.unit * np.abs(answer)
        pair = (self.output, key.input)
        if key.kind == "gradient":
            return self.sample.bars[pair]
        return np.full(answer.shape, RATIO * self.sample.relative_bar(pair) * largest_of(answer))

    def whole(self, key: Key, point: Point) -> Array:
        """Return what a derivative is the slope of: weighted values, or for a Hessian's action gradients."""
        if key.kind == "Hessian":
            return self.ask(Key("gradient", key.input), point)
        change = self.ask(VALUES, point) - self.sample.values[self.output]
        return np.sum(self._cotangent * change)[None] if key.kind == "gradient" else change

    def rounding_of_whole(self, key: Key) -> float:
        """Return how far rounding may move that."""
        if key.kind == "Hessian":
            return self.rounding(self.sample.gradients[self.output, key.input])
        rounding = self.rounding(self.sample.values[self.output])
        return float(np.sum(np.abs(self._cotangent))) * rounding if key.kind == "gradient" else rounding

    def slope(self, key: Key, answer: Array) -> Array:
        """Return the slope of ``whole`` along the direction that a derivative is."""
        return np.sum(answer * self.direction[key.input])[None] if key.kind == "gradient" else answer

    def unit(self, key: Key) -> Array | float:
        """Return what a number of an answer is multiplied by in a report."""
        return self.meter.units[self.output] if key.kind in ("values", "tangent") else 1.0

    def what(self, key: Key) -> str:
        """Return the answer's name in a report."""
        name = key.input
        return {
            "values": self.output,
            "gradient": f"d{name}",
            "tangent": f"jvp in {name}",
            "Hessian": f"H v in {name}",
        }[key.kind]

    def request(self, key: Key, point: Point) -> Request | None:
        """Return the request of a question, ``None`` for one that is not shown."""
        if key.kind == "values":
            return self.meter.function.evaluation(point, self.output)
        if key.kind == "gradient":
            return self.meter.request(point, self.output, key.input, self._cotangent)
        return None

    def _gradients(self, point: Point, names: list[str]) -> Arrays:
        """Return gradients in some inputs, of a request for all where that is one."""
        wanted = names if self.meter.function.one_by_one else list(self.direction)
        return self.meter.vjp(point, self.output, self._cotangent, wanted)

    @property
    def _cotangent(self) -> Array:
        return self.sample.cotangents[self.output]
