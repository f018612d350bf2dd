"""Models of UM-Bridge servers (protocol 1.0): flat vectors of float64, and derivatives of one output and one input."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.dtypes import Array
from pullback.errors import BadAnswer, BadArgument
from pullback.gradcheck.function import (
    MAX_NUMBERS,
    MAX_SLOTS,
    Arrays,
    Model,
    Point,
    Request,
    Slot,
    array_of,
    bounded,
    draw_inputs,
    elements,
    given_array,
    given_inputs,
    member,
    shown,
)
from pullback.gradcheck.of.json_server import JsonServer


class UmBridgeModel(Model):
    """A model of an UM-Bridge server. Its inputs are named x, or x0, x1, ..., and its outputs y, or y0, y1, ..."""

    one_by_one = True

    def __init__(self, server: JsonServer, name: str, config: Mapping[str, Any]) -> None:
        """Ask for the model's sizes and what it supports; ``name`` is "" for the server's only model.

        Raises ``BadArgument`` for a model that is unknown, or has no gradient.
        """
        self._server, self._config = server, dict(config)
        info = f"{server.url}/Info"
        names = [str(each) for each in elements(member(server.get("/Info"), "models", info), info)]
        if not name and len(names) == 1:
            name = names[0]
        if name not in names:
            known = ", ".join(names)[:200]
            raise BadArgument(f"expected umbridge+{server.url}/MODEL, where MODEL is one of {known}; got {name!r}")
        self.name = name
        support = member(server.post("/ModelInfo", {"name": name}), "support", f"{server.url}/ModelInfo")
        for needed in ("Evaluate", "Gradient"):
            if member(support, needed, f"{server.url}/ModelInfo") is not True:
                raise BadArgument(f"{name}: expected a model that supports {needed}, got {support}: implement it")
        self.has_jvp, self.has_hessian = support.get("ApplyJacobian") is True, support.get("ApplyHessian") is True
        self.inputs = self._slots("InputSizes", "inputSizes", "x")
        self.outputs = self._slots("OutputSizes", "outputSizes", "y")
        self._numbers = {slot.name: i for slots in (self.inputs, self.outputs) for i, slot in enumerate(slots)}

    def points(self, given: Sequence[Any], count: int, rng: np.random.Generator) -> list[Point]:
        """Return the given points, each a list of vectors or a vector for each name, or random ones."""
        if not given:
            return [Point(draw_inputs(self.inputs, rng)) for _ in range(count)]
        by_name = [given_inputs(each, self.inputs) for each in given]
        return [Point({slot.name: given_array(each[slot.name], slot) for slot in self.inputs}) for each in by_name]

    def values(self, point: Point) -> Arrays:
        """Return the outputs."""
        where = self._where("Evaluate")
        output = elements(member(self._post("Evaluate", input=self._input(point)), "output", where), where)
        if len(output) != len(self.outputs):
            raise BadAnswer(f"{where}: expected {len(self.outputs)} vectors, got {len(output)}")
        return {slot.name: self._vector(output[i], slot, "Evaluate") for i, slot in enumerate(self.outputs)}

    def vjp(self, point: Point, output: str, cotangent: Array, inputs: Sequence[str]) -> Arrays:
        """Return Jᵀ dy by input, with a request for each."""
        return {
            slot.name: self._action("Gradient", slot, self._gradient(point, output, slot.name, cotangent))
            for slot in self.inputs
            if slot.name in inputs
        }

    def jvp(self, point: Point, name: str, tangent: Array, outputs: Sequence[str]) -> Arrays:
        """Return J tx by output, with a request for each."""
        fields = {"inWrt": self._numbers[name], "input": self._input(point), "vec": tangent.tolist()}
        return {
            slot.name: self._action("ApplyJacobian", slot, {"outWrt": self._numbers[slot.name], **fields})
            for slot in self.outputs
            if slot.name in outputs
        }

    def hessian(self, point: Point, output: str, inputs: tuple[str, str], cotangent: Array, vector: Array) -> Array:
        """Return ∂/∂b [Jₐᵀ dy] · v, of the shape of a."""
        first, second = (self._numbers[name] for name in inputs)
        fields = {"outWrt": self._numbers[output], "inWrt1": first, "inWrt2": second, "input": self._input(point)}
        fields |= {"sens": cotangent.tolist(), "vec": vector.tolist()}
        return self._action("ApplyHessian", self.inputs[first], fields)

    def evaluation(self, point: Point, output: str) -> Request:
        """Return the request for the values of an output."""
        body = {"name": self.name, "input": self._input(point), "config": self._config}
        return Request(f"{self._server.url}/Evaluate", body, f"output[{self._numbers[output]}]")

    def request(self, point: Point, output: str, name: str, cotangent: Array) -> Request:
        """Return the request for the gradient with respect to one input."""
        fields = self._gradient(point, output, name, cotangent)
        body = {"name": self.name, **fields, "config": self._config}
        return Request(f"{self._server.url}/Gradient", body, "output")

    def _gradient(self, point: Point, output: str, name: str, cotangent: Array) -> dict[str, Any]:
        wrt = {"outWrt": self._numbers[output], "inWrt": self._numbers[name]}
        return {**wrt, "input": self._input(point), "sens": cotangent.tolist()}

    def _post(self, call: str, **fields: Any) -> Any:
        return self._server.post(f"/{call}", {"name": self.name, **fields, "config": self._config})

    def _action(self, call: str, slot: Slot, fields: dict[str, Any]) -> Array:
        return self._vector(member(self._post(call, **fields), "output", self._where(call)), slot, call)

    def _vector(self, value: Any, slot: Slot, call: str) -> Array:
        return array_of(value, slot.shape, f"{self._where(call)}, {slot.name}")

    def _slots(self, call: str, key: str, letter: str) -> list[Slot]:
        sizes = elements(member(self._post(call), key, self._where(call)), self._where(call))
        if not sizes or len(sizes) > MAX_SLOTS or not all(type(n) is int and 0 < n <= MAX_NUMBERS for n in sizes):
            expected = f"expected sizes from 1 to {MAX_NUMBERS} as {key!r}, at most {MAX_SLOTS}"
            raise BadAnswer(f"{self._where(call)}: {expected}, got {shown(sizes)}; they may depend on --config")
        is_only = len(sizes) == 1
        slots = [Slot(letter if is_only else f"{letter}{i}", (n,)) for i, n in enumerate(sizes)]
        return bounded(slots, self._where(call))

    def _input(self, point: Point) -> list[Any]:
        return [point.inputs[slot.name].tolist() for slot in self.inputs]

    def _where(self, call: str) -> str:
        return f"{self._server.url}/{call} of model {self.name}"
