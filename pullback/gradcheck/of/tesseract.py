"""Tesseracts: a server with a schema, whose differentiable arrays have a shape and a dtype."""

import base64
import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.dtypes import COMPLEX, Array
from pullback.errors import BadAnswer, BadArgument
from pullback.gradcheck.function import (
    FREE_SIZE,
    MAX_NUMBERS,
    Arrays,
    Model,
    Point,
    Request,
    Slot,
    array_of,
    as_object,
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

BASE64 = "json+base64"
ENCODED = {"shape", "dtype", "data"}
"""The members of an encoded array."""
DTYPES = ("float16", "float32", "float64")


class TesseractModel(Model):
    """A Tesseract. Its inputs and outputs have the paths of its schema as names, such as x or mesh.points."""

    takes_subsets = True

    def __init__(self, server: JsonServer) -> None:
        """Read the schema; raise ``BadArgument`` for a Tesseract without a vector-Jacobian product."""
        self._server = server
        document = server.get("/openapi.json")
        where = f"{server.url}/openapi.json"
        paths = member(document, "paths", where)
        if "/apply" not in paths:
            raise BadAnswer(f"{where}: expected a Tesseract, with a path /apply, got {', '.join(paths)[:80] or 'none'}")
        if "/vector_jacobian_product" not in paths:
            cure = "implement vector_jacobian_product"
            raise BadArgument(f"{server.url}: expected a Tesseract with a vector-Jacobian product, got none: {cure}")
        self.name = str(document.get("info", {}).get("title", "tesseract"))
        self.has_jvp = "/jacobian_vector_product" in paths
        has_base64 = BASE64 in document.get("x-supported-output-formats", ())
        self._accept = f"application/{BASE64}; gpu_transport=none" if has_base64 else "*/*"
        schemas = member(member(document, "components", where), "schemas", where)
        self._properties: Mapping[str, Any] = member(
            member(schemas, "Apply_InputSchema", where), "properties", f"{where}: Apply_InputSchema"
        )
        self._required: Sequence[str] = schemas["Apply_InputSchema"].get("required", ())
        self.inputs = self._slots(member(schemas, "ApplyInputSchema", where), where)
        self._open = {slot.name: slot for slot in self._slots(member(schemas, "ApplyOutputSchema", where), where)}
        self.outputs = list(self._open.values())

    def points(self, given: Sequence[Any], count: int, rng: np.random.Generator) -> list[Point]:
        """Return the given points, each an object with all inputs, or random ones; set the shapes to theirs."""
        found = [self._given(each) for each in given] or [
            Point(draw_inputs(self.inputs, rng), self._defaults()) for _ in range(count)
        ]
        first = shapes_of(found)
        self.inputs = [slot._replace(shape=first[slot.name]) for slot in self.inputs]
        answer = self._server.post("/apply", {"inputs": self._document(found[0])}, self._accept)
        self.outputs = bounded([self._at(answer, slot, "apply")[1] for slot in self._open.values()], "apply")
        return found

    def values(self, point: Point) -> Arrays:
        """Return the outputs."""
        answer = self._server.post("/apply", {"inputs": self._document(point)}, self._accept)
        return {slot.name: self._array(self._at(answer, slot, "apply")[0], slot, "apply") for slot in self.outputs}

    def vjp(self, point: Point, output: str, cotangent: Array, inputs: Sequence[str]) -> Arrays:
        """Return Jᵀ dy by input, from one request."""
        call = "vector_jacobian_product"
        answer = self._server.post(f"/{call}", self._vjp(point, output, cotangent, inputs), self._accept)
        return {
            slot.name: self._array(member(answer, slot.name, call), slot, call)
            for slot in self.inputs
            if slot.name in inputs
        }

    def jvp(self, point: Point, name: str, tangent: Array, outputs: Sequence[str]) -> Arrays:
        """Return J tx by output, from one request."""
        call, (slot,) = "jacobian_vector_product", [slot for slot in self.inputs if slot.name == name]
        body = {"inputs": self._document(point), "jvp_inputs": [name], "jvp_outputs": list(outputs)}
        body["tangent_vector"] = {name: encoded(tangent, slot.dtype)}
        answer = self._server.post(f"/{call}", body, self._accept)
        return {
            slot.name: self._array(member(answer, slot.name, call), slot, call)
            for slot in self.outputs
            if slot.name in outputs
        }

    def hessian(self, point: Point, output: str, inputs: tuple[str, str], cotangent: Array, vector: Array) -> Array:
        """Raise ``NotImplementedError``: the protocol has no Hessian."""
        raise NotImplementedError

    def evaluation(self, point: Point, output: str) -> Request:
        """Return the request for the values of an output."""
        return Request(f"{self._server.url}/apply", {"inputs": self._document(point)}, output)

    def request(self, point: Point, output: str, name: str, cotangent: Array) -> Request:
        """Return the request for the gradient with respect to one input."""
        body = self._vjp(point, output, cotangent, [name])
        return Request(f"{self._server.url}/vector_jacobian_product", body, name)

    def _vjp(self, point: Point, output: str, cotangent: Array, inputs: Sequence[str]) -> dict[str, Any]:
        dtype = next(slot.dtype for slot in self.outputs if slot.name == output)
        wanted = {"vjp_inputs": list(inputs), "vjp_outputs": [output]}
        return {"inputs": self._document(point), **wanted, "cotangent_vector": {output: encoded(cotangent, dtype)}}

    def _slots(self, schema: Any, where: str) -> list[Slot]:
        found: list[Slot] = []
        for path, array in member(schema, "differentiable_arrays", where).items():
            if any(letter in path for letter in "[{"):
                raise BadArgument(
                    f"{path}: expected differentiable arrays with fixed paths, got one in a list or a dict"
                )
            shape, dtype = member(array, "shape", where), member(array, "dtype", where)
            if dtype not in DTYPES:
                cure = "; wrap it with the parts in a last axis of length 2" if dtype in COMPLEX else ""
                raise BadArgument(f"{path}: expected one of the dtypes {', '.join(DTYPES)}, got {dtype!r}{cure}")
            sizes = tuple(FREE_SIZE if n is None else int(n) for n in shape or ())
            if min(sizes, default=1) < 0 or math.prod(sizes) > MAX_NUMBERS:
                raise BadAnswer(f"{where}: {path}: expected at most {MAX_NUMBERS} numbers, got shape {list(sizes)}")
            found.append(Slot(path, sizes, dtype))
        if not found:
            raise BadArgument(f"{self._server.url}: expected differentiable inputs and outputs, got none")
        return bounded(found, where)

    def _defaults(self) -> dict[str, Any]:
        """Return the inputs that have no derivatives, with the first example of those without a default."""
        ours = {slot.name.partition(".")[0] for slot in self.inputs}
        found: dict[str, Any] = {}
        for name in self._required:
            if name not in ours:
                examples = self._properties.get(name, {}).get("examples")
                if not examples:
                    raise BadArgument(f"{name}: expected a value for this input, which has no default: give --inputs")
                found[name] = examples[0]
        return found

    def _given(self, given: Any) -> Point:
        others = copy.deepcopy(given_object(given))
        arrays: dict[str, Array] = {}
        for slot in self.inputs:
            owner, last = others, slot.name
            while "." in last:
                head, _, last = last.partition(".")
                owner = owner.get(head, {})
            if last not in owner:
                raise BadArgument(f"--inputs: expected an object with {slot.name}, got {', '.join(others)}")
            # A dimension that the schema leaves open has the size of the numbers.
            value = decoded(owner.pop(last), f"--inputs: {slot.name}")
            arrays[slot.name] = given_array(value, slot._replace(shape=np.shape(np.asarray(value, object))))
        return Point(arrays, others)

    def _document(self, point: Point) -> dict[str, Any]:
        found: dict[str, Any] = copy.deepcopy(dict(point.others))
        for slot in self.inputs:
            owner, last = found, slot.name
            while "." in last:
                head, _, last = last.partition(".")
                owner = owner.setdefault(head, {})
            owner[last] = encoded(point.inputs[slot.name], slot.dtype)
        return found

    def _at(self, answer: Any, slot: Slot, call: str) -> tuple[Any, Slot]:
        """Return an array of an answer, and the slot with its shape."""
        for part in slot.name.split("."):
            answer = member(answer, part, f"{self._server.url}/{call}")
        what = f"{self._server.url}/{call}, {slot.name}"
        sizes = elements(member(answer, "shape", what), what)
        if not all(type(n) is int and n >= 0 for n in sizes) or math.prod(sizes) > MAX_NUMBERS:
            raise BadAnswer(f"{what}: expected a shape of at most {MAX_NUMBERS} numbers, got {shown(sizes)}")
        return answer, slot._replace(shape=tuple(sizes))

    def _array(self, value: Any, slot: Slot, call: str) -> Array:
        what = f"{self._server.url}/{call}, {slot.name}"
        data, dtype = member(value, "data", what), str(member(value, "dtype", what))
        buffer, encoding = member(data, "buffer", what), member(data, "encoding", what)
        if encoding == "base64" and dtype in DTYPES:
            try:
                flat = _of_base64(buffer, dtype)
            except (ValueError, TypeError) as error:
                raise BadAnswer(f"{what}: expected base64 of {dtype}, got {shown(buffer)}") from error
            shape = value.get("shape")
            if flat.size != math.prod(slot.shape) or shape != list(slot.shape):
                raise BadAnswer(f"{what}: expected numbers of shape {list(slot.shape)}, got shape {shape}")
            return flat.reshape(slot.shape).astype(np.float64)
        if encoding != "json":
            raise BadAnswer(f"{what}: expected floats as base64 or json, got {dtype} as {encoding!r}")
        return array_of(buffer, slot.shape, what)


def decoded(value: Any, what: str) -> Any:
    """Return the numbers of an encoded array, and another value as it is; raise ``BadArgument`` for a broken array."""
    found = as_object(value)
    data = None if found is None or not found.keys() >= ENCODED else as_object(found["data"])
    if found is None or data is None:
        return value
    if data.get("encoding") != "base64":
        return data.get("buffer")
    try:
        return _of_base64(data.get("buffer"), str(found.get("dtype"))).reshape(elements(found.get("shape"), what))
    except (ValueError, TypeError, BadAnswer) as error:
        raise BadArgument(f"{what}: expected base64 of an array, got {shown(found)}") from error


def _of_base64(buffer: Any, dtype: str) -> Array:
    return np.frombuffer(base64.b64decode(buffer, validate=True), np.dtype(dtype).newbyteorder("<"))


def encoded(x: Array, dtype: str) -> dict[str, Any]:
    """Return an array as requests have it."""
    data = {"buffer": x.astype(dtype).astype(np.float64).tolist(), "encoding": "json"}
    return {"object_type": "array", "shape": list(x.shape), "dtype": dtype, "data": data}
