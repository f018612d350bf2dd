"""Models of the Open Inference Protocol v2, whose derivatives are models too: ``{model}`` and ``{model}.vjp``.

``{model}.vjp`` takes the inputs, and a cotangent dy for each output y; it answers a gradient dx for each input x.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np

from pullback.dtypes import Array
from pullback.errors import BadAnswer, BadArgument, ModelFailed
from pullback.gradcheck.function import (
    FREE_SIZE,
    MAX_NUMBERS,
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
    given_object,
    member,
    shapes_of,
    shown,
)
from pullback.gradcheck.of.json_server import JsonServer

DTYPES = {"FP16": "float16", "FP32": "float32", "FP64": "float64"}
DATATYPES = {dtype: datatype for datatype, dtype in DTYPES.items()}


class OpenInferenceModel(Model):
    """A pair of models of a server that speaks the Open Inference Protocol."""

    def __init__(self, server: JsonServer, name: str, parameters: Mapping[str, Any]) -> None:
        """Read the metadata of both models; raise ``BadArgument`` if the server has no such pair."""
        self._server, self.name, self._parameters = server, name, dict(parameters)
        if not name:
            raise BadArgument(f"expected oip+{server.url}/MODEL, got no name of a model")
        metadata = self._metadata(name)
        try:
            self._metadata(f"{name}.vjp")
        except ModelFailed as error:
            cure = f"serve its vector-Jacobian product as {name}.vjp"
            raise BadArgument(f"{name}: expected a pair of models, got no {name}.vjp ({error}): {cure}") from error
        declared = elements(metadata.get("inputs", []), f"metadata of {name}")
        datatypes = {str(member(each, "name", name)): str(member(each, "datatype", name)) for each in declared}
        self._others = {name: datatype for name, datatype in datatypes.items() if datatype not in DTYPES}
        slots = [self._slot(each) for each in declared if each["datatype"] in DTYPES]
        self.inputs = bounded(slots, f"metadata of {name}")
        self.outputs = list[Slot]()
        outputs = elements(metadata.get("outputs", []), f"metadata of {name}")
        self._ranks = {str(member(each, "name", name)): len(member(each, "shape", name)) for each in outputs}

    def points(self, given: Sequence[Any], count: int, rng: np.random.Generator) -> list[Point]:
        """Return the given points, each an object with all inputs, or random ones; learn the outputs from an answer."""
        if not given and (self._others or not self.inputs):
            names = f"inputs that are no floats, {', '.join(self._others)}" if self._others else "none"
            raise BadArgument(f"{self.name}: expected inputs of floats in the metadata, got {names}: give --inputs")
        found = [self._given(each) for each in given] or [Point(draw_inputs(self.inputs, rng)) for _ in range(count)]
        dtypes = {slot.name: slot.dtype for slot in self.inputs}
        self.inputs = [Slot(name, shape, dtypes.get(name, "float64")) for name, shape in shapes_of(found).items()]
        self.outputs = [
            Slot(name, self._shape(each, name), DTYPES[each["datatype"]])
            for name, each in self._infer(self.name, self._tensors(found[0])).items()
            if each.get("datatype") in DTYPES
        ]
        if not bounded(self.outputs, self.name):
            raise BadArgument(f"{self.name}: expected outputs of floats, got none")
        return found

    def without_cotangents(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs among the tensors of a request to either model of the pair."""
        cotangents = {f"d{name}" for name in self._ranks}
        return {name: value for name, value in given.items() if name not in cotangents}

    def values(self, point: Point) -> Arrays:
        """Return the outputs."""
        answer = self._infer(self.name, self._tensors(point))
        return {slot.name: self._array(answer, slot.name, slot) for slot in self.outputs}

    def vjp(self, point: Point, output: str, cotangent: Array, inputs: Sequence[str]) -> Arrays:
        """Return Jᵀ dy by input, from one request in which the cotangents of the other outputs are 0."""
        answer = self._infer(f"{self.name}.vjp", self._with_cotangents(point, output, cotangent))
        return {slot.name: self._array(answer, f"d{slot.name}", slot) for slot in self.inputs if slot.name in inputs}

    def jvp(self, point: Point, name: str, tangent: Array, outputs: Sequence[str]) -> Arrays:
        """Raise ``NotImplementedError``: a pair has no jvp."""
        raise NotImplementedError

    def hessian(self, point: Point, output: str, inputs: tuple[str, str], cotangent: Array, vector: Array) -> Array:
        """Raise ``NotImplementedError``: a pair has no Hessian."""
        raise NotImplementedError

    def evaluation(self, point: Point, output: str) -> Request:
        """Return the request for the values of an output."""
        return Request(f"{self._server.url}{_path(self.name)}/infer", self._body(self._tensors(point)), output)

    def request(self, point: Point, output: str, name: str, cotangent: Array) -> Request:
        """Return the request for the gradient with respect to one input."""
        body = self._body(self._with_cotangents(point, output, cotangent))
        return Request(f"{self._server.url}{_path(f'{self.name}.vjp')}/infer", body, f"d{name}")

    def _metadata(self, name: str) -> dict[str, Any]:
        found = self._server.get(_path(name))
        member(found, "name", f"{self._server.url}{_path(name)}")
        return found

    def _slot(self, declared: Any) -> Slot:
        what = f"metadata of {self.name}"
        name, sizes = str(member(declared, "name", what)), elements(member(declared, "shape", what), what)
        if not all(type(n) is int for n in sizes):
            raise BadAnswer(f"{what}: expected a shape of integers for {name}, got {shown(sizes)}")
        shape = tuple(FREE_SIZE if n < 0 else n for n in sizes)
        if math.prod(shape) > MAX_NUMBERS:
            raise BadAnswer(f"{what}: expected at most {MAX_NUMBERS} numbers, got shape {list(shape)}")
        return Slot(name, shape, DTYPES[declared["datatype"]])

    def _given(self, given: Any) -> Point:
        by_name = given_object(given)
        known = {slot.name: slot for slot in self.inputs}
        missing = [name for name in (*known, *self._others) if name not in by_name]
        if missing:
            raise BadArgument(f"--inputs: expected {', '.join(missing)} too, got {', '.join(by_name)}")
        others = {name: value for name, value in by_name.items() if name in self._others}
        arrays: dict[str, Array] = {}
        for name, value in by_name.items():
            if name not in others:
                shape = np.shape(np.asarray(value, object))
                arrays[name] = given_array(value, Slot(name, shape, known[name].dtype if name in known else "float64"))
        return Point(arrays, others)

    def _tensors(self, point: Point) -> list[dict[str, Any]]:
        dtypes = {slot.name: slot.dtype for slot in self.inputs}
        tensors = [_tensor(name, x, DATATYPES[dtypes.get(name, "float64")]) for name, x in point.inputs.items()]
        return tensors + [_tensor(name, np.asarray(value), self._others[name]) for name, value in point.others.items()]

    def _with_cotangents(self, point: Point, output: str, cotangent: Array) -> list[dict[str, Any]]:
        zeros = [(slot, cotangent if slot.name == output else np.zeros(slot.shape)) for slot in self.outputs]
        return self._tensors(point) + [_tensor(f"d{slot.name}", dy, DATATYPES[slot.dtype]) for slot, dy in zeros]

    def _body(self, tensors: list[dict[str, Any]]) -> dict[str, Any]:
        return {"inputs": tensors} | ({"parameters": self._parameters} if self._parameters else {})

    def _infer(self, name: str, tensors: list[dict[str, Any]]) -> dict[str, Any]:
        path = f"{_path(name)}/infer"
        outputs = elements(member(self._server.post(path, self._body(tensors)), "outputs", path), path)
        return {str(member(each, "name", path)): each for each in outputs}

    def _shape(self, answer: Any, name: str) -> tuple[int, ...]:
        """Return the shape of an output, without the dimension of size 1 that MLServer adds to a vector."""
        what = f"{self._server.url}, output {name} of {self.name}"
        sizes = elements(member(answer, "shape", what), what)
        if not all(type(n) is int and n >= 0 for n in sizes) or math.prod(sizes) > MAX_NUMBERS:
            raise BadAnswer(f"{what}: expected a shape of at most {MAX_NUMBERS} numbers, got {shown(sizes)}")
        is_vector = len(sizes) == len((0, 1)) and sizes[1] == 1 and self._ranks.get(name, 1) == 1
        return tuple(sizes[:1] if is_vector else sizes)

    def _array(self, answer: dict[str, Any], name: str, slot: Slot) -> Array:
        what = f"{self._server.url}, output {name} of {self.name}"
        found = member(answer, name, what)
        shape, data = member(found, "shape", what), member(found, "data", what)
        if shape not in (list(slot.shape), [*slot.shape, 1]):
            raise BadAnswer(f"{what}: expected shape {list(slot.shape)}, got {shown(shape)}")
        # The protocol allows flat data and nested ones.
        is_flat = not (isinstance(data, list) and data and isinstance(data[0], list))
        flat = array_of(data, (math.prod(slot.shape),) if is_flat else tuple(shape), what)
        return flat.reshape(slot.shape)


def _path(name: str) -> str:
    return f"/v2/models/{quote(name, safe='')}"


def _tensor(name: str, x: Array, datatype: str) -> dict[str, Any]:
    numbers = x.astype(DTYPES[datatype]).astype(np.float64) if datatype in DTYPES else x
    return {"name": name, "shape": list(x.shape), "datatype": datatype, "data": numbers.ravel().tolist()}
