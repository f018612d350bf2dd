"""Parse a request for inference: strict JSON, followed by the bytes of binary tensors."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, cast

import numpy as np

from app.errors import MAX_GOT, Loc, Malformed, clip, near, wrong
from app.routes.openinference.models import DATATYPES, PARAMETERS, ROWS, SEQUENCE, Model, ModelInput, ModelOutput
from app.routes.protocol import name_list, type_variable
from app.tensors import fast_json, strict_json
from app.tensors.casting import Loss, Numbers, bools, describe
from app.tensors.dtypes import DType
from app.tensors.json import read_shape
from app.tensors.strict_json import Body
from ops import Array

# The longest JSON, in bytes, whose parsed form is cached.
SHORT = 1 << 12
MICROSECONDS = 1_000_000
DIRECTIONS = ("tangents", "vectors")

_FIELDS = ("id", "model_name", "parameters", "inputs", "outputs")
_INPUT = ("name", "shape", "datatype", "parameters", "data")
_OUTPUT = ("name", "parameters")

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Tensor:
    """A tensor of a request: its ``data`` in JSON, or ``None`` if its bytes begin ``begin`` bytes after the JSON."""

    input: ModelInput
    row: DType
    shape: tuple[int, ...]
    begin: int
    data: Any

    def value(self, body: Body, lead: int) -> Any:
        """Return the tensor for a native request: an array that is a view of the body, or its typed form."""
        if self.data is not None:
            return {"dtype": self.row.name, "shape": list(self.shape), "data": self.data}
        if self.row.numpy.kind == "b":
            return self._bools(np.ndarray(self.shape, np.uint8, body, lead + self.begin))
        return np.ndarray(self.shape, self.row.wire, body, lead + self.begin).astype(self.row.numpy, copy=False)

    def _bools(self, raw: Array) -> Array:
        try:
            return bools(raw)
        except Loss as loss:
            loc = ("inputs", self.input.name, *map(int, np.unravel_index(loss.index, raw.shape)))
            raise wrong(loc, loss.message, expected=loss.expected, got=loss.got) from None


@dataclass(frozen=True)
class InferenceRequest:
    """The parsed JSON of a request.

    ``fields`` are the fields of the native request except the tensors. ``outputs`` has each requested output, and
    whether the client wants it in binary. ``size`` is the number of bytes after the JSON.
    """

    id: str | None
    tensors: Sequence[Tensor]
    fields: Object
    outputs: Sequence[tuple[ModelOutput, bool]]
    timeout_s: float
    size: int

    @property
    def is_binary(self) -> bool:
        """Whether all tensors of the request and of the response are binary."""
        return all(tensor.data is None for tensor in self.tensors) and all(binary for _, binary in self.outputs)

    def native(self, body: Body, lead: int) -> dict[str, Any]:
        """Return the fields of the native request; raises ``Malformed`` if the body has the wrong length."""
        if lead + self.size != len(body):
            expected = f"expected {self.size} bytes of tensors after {lead} bytes of JSON (binary_data_size)"
            raise Malformed(f"{expected}, got {len(body) - lead}")
        fields = dict(self.fields)
        for tensor in self.tensors:
            named = cast("dict[str, Any]", fields.setdefault(tensor.input.field, {}))
            named[tensor.input.slot.name] = tensor.value(body, lead)
        return fields


def _places(request: dict[str, Any]) -> Iterator[fast_json.Place]:
    """Yield the places of tensors in a request."""
    inputs = request.get("inputs")
    for item in cast("list[Any]", inputs) if isinstance(inputs, list) else ():
        yield cast("dict[str, Any]", item) if isinstance(item, dict) else {}, "data", Numbers


_parse = partial(fast_json.parse, places=_places)


def read_request(model: Model, raw: Body, parse: Callable[[Body], Any] = _parse) -> InferenceRequest:
    """Parse the JSON of a request to a model; raises ``Malformed`` or ``Unprocessable``."""
    fields = _object(parse(raw), (), _FIELDS, "field")
    _check_name(fields, model)
    parameters = _parameters(fields, (), None)
    tensors, size = _tensors(model, _list(fields.get("inputs"), "inputs"))
    native = _attrs(parameters) | _type_variable(model, tensors)
    is_binary = _flag(parameters, "binary_data_output", ("parameters",))
    outputs = _outputs(model, _list(fields.get("outputs"), "outputs"), bool(is_binary))
    native |= model.selection(output for output, _ in outputs)
    return InferenceRequest(_id(fields), tensors, native, outputs, _timeout_s(parameters), size)


@lru_cache(maxsize=256)
def known_request(model: Model, raw: bytes) -> InferenceRequest:
    """Return ``read_request`` from a cache: a client that repeats a request sends the same JSON each time."""
    return read_request(model, raw, strict_json.parse)


def _object(value: Any, loc: Loc, known: Sequence[str] | None, what: str) -> Object:
    """Return an object whose keys are all ``known``."""
    if not isinstance(value, dict):
        raise wrong(loc, "expected an object", expected="an object", got=describe(value))
    fields = cast("dict[str, Any]", value)
    for name in fields:
        if known is not None and name not in known:
            _refuse_feature(name, loc)
            raise wrong((*loc, name), f"unknown {what}", expected=near(name, known), got=name)
    return fields


def _parameters(fields: Object, loc: Loc, known: Sequence[str] | None) -> Object:
    """Return the parameters of a request or a tensor, empty if they are missing or null."""
    value = fields.get("parameters")
    return {} if value is None else _object(value, (*loc, "parameters"), known, "parameter")


def _refuse_feature(name: str, loc: Loc) -> None:
    if name.startswith("shared_memory_"):
        expected = "binary data in the body"
        raise wrong((*loc, name), "shared memory is not supported", expected=expected, got=clip(name, MAX_GOT))
    if name == "classification":
        raise wrong((*loc, name), "classification is not supported", expected="no classification", got=name)


def _list(value: Any, field: str) -> list[Any]:
    if not isinstance(value, list | None):
        raise wrong((field,), "expected a list of tensors", expected="a list of tensors", got=describe(value))
    return cast("list[Any]", value or [])


def _check_name(fields: Object, model: Model) -> None:
    if fields.get("model_name") not in (None, model.name):
        got = describe(fields["model_name"])
        raise wrong(("model_name",), "model_name differs from the path", expected=f"{model.name}, or none", got=got)


def _id(fields: Object) -> str | None:
    if not isinstance(request_id := fields.get("id"), str | None):
        raise wrong(("id",), "expected a string", expected="a string", got=describe(request_id))
    return request_id


def _attrs(parameters: Object) -> dict[str, Any]:
    for name in parameters:
        if name.startswith(SEQUENCE):
            raise wrong(("parameters", name), "sequences are not supported", expected="no sequences", got=name)
    _whole(parameters, "priority")
    return {"attrs": {name: value for name, value in parameters.items() if name not in PARAMETERS}}


def _timeout_s(parameters: Object) -> float:
    """Return the timeout of a request in seconds, infinite if it has none, or 0 as Triton's clients send."""
    return (_whole(parameters, "timeout") / MICROSECONDS) or math.inf


def _whole(parameters: Object, name: str) -> int:
    value = parameters.get(name, 0)
    if type(value) is not int or value < 0:
        raise wrong(("parameters", name), "expected an integer", expected="an integer from 0", got=describe(value))
    return value


def _flag(parameters: Object, name: str, loc: Loc) -> bool | None:
    value = parameters.get(name)
    if not isinstance(value, bool | None):
        raise wrong((*loc, name), "expected a bool", expected="true or false", got=describe(value))
    return value


def _tensors(model: Model, items: Sequence[Any]) -> tuple[list[Tensor], int]:
    """Return the tensors of a request, and the number of their bytes after the JSON."""
    tensors, size = dict[str, Tensor](), 0
    for place, item in enumerate(items):
        name, fields = _name_and_fields(item, ("inputs", place), _INPUT, model.inputs, tensors)
        loc = ("inputs", name)
        row = _row(model, model.inputs[name], fields.get("datatype"), loc)
        shape = read_shape(fields.get("shape"), row, (*loc, "shape"))
        nbytes = _nbytes(fields, row, shape, loc)
        tensors[name] = Tensor(model.inputs[name], row, shape, size, fields.get("data"))
        size += nbytes
    _check_present(model, tensors)
    return list(tensors.values()), size


def _name_and_fields(
    item: Any, loc: Loc, keys: Sequence[str], known: Mapping[str, Any], seen: Iterable[str]
) -> tuple[str, Object]:
    """Return the name of a tensor and its other fields; raises ``Unprocessable`` if it is unknown or a duplicate."""
    fields = _object(item, loc, keys, "field")
    name = fields.get("name")
    if not isinstance(name, str) or name not in known:
        got = name if isinstance(name, str) else describe(name)
        expected = near(got, known)
        raise wrong((loc[0], clip(got, MAX_GOT)), "unknown tensor", expected=expected, got=got)
    if name in seen:
        raise wrong((loc[0], name), "duplicate tensor", expected="each tensor once", got=name)
    return name, fields


def _row(model: Model, slot: ModelInput, datatype: Any, loc: Loc) -> DType:
    """Return the dtype for a tensor's datatype; raises ``Unprocessable`` if its slot does not accept it."""
    known = model.datatypes(slot.slot)
    if not isinstance(datatype, str) or datatype not in known:
        got = datatype if isinstance(datatype, str) else describe(datatype)
        message = f"model {model.name} does not accept this datatype, and tensors are not cast"
        raise wrong((*loc, "datatype"), message, expected=f"one of {', '.join(known)}", got=got)
    return ROWS[datatype]


def _nbytes(fields: Object, row: DType, shape: Sequence[int], loc: Loc) -> int:
    """Return the number of a tensor's bytes after the JSON."""
    parameters = _parameters(fields, loc, ("binary_data_size",))
    size, data = parameters.get("binary_data_size"), fields.get("data")
    if (size is None) == (data is None):
        got = "neither" if size is None else "both"
        raise wrong(loc, "expected one data source", expected="either data or the parameter binary_data_size", got=got)
    needed = math.prod(shape) * row.itemsize
    if data is None and (type(size) is not int or size != needed):
        expected = f"{needed} bytes for shape {list(shape)} of {DATATYPES[row.name]}"
        raise wrong((*loc, "binary_data_size"), "size mismatch", expected=expected, got=describe(size))
    return 0 if data is not None else needed


def _check_present(model: Model, tensors: Mapping[str, Tensor]) -> None:
    """Raise ``Unprocessable`` if one of the op's inputs is missing, or if a jvp or hvp has no direction."""
    for name, model_input in model.inputs.items():
        if not model_input.is_optional and name not in tensors:
            expected = f"all of {', '.join(slot.name for slot in model.op.inputs)}"
            raise wrong(("inputs",), f"missing input {name}", expected=expected, got=name_list(tensors))
    directions = [name for name, model_input in model.inputs.items() if model_input.field in DIRECTIONS]
    if directions and not any(name in tensors for name in directions):
        expected = f"at least one of {name_list(directions)}"
        raise wrong(("inputs",), "missing direction", expected=expected, got=name_list(tensors))


def _type_variable(model: Model, tensors: Sequence[Tensor]) -> dict[str, str]:
    """Return the field ``dtype`` of the native request; raises ``Unprocessable`` if the tensors' datatypes disagree."""
    datatypes = {tensor.input.name: DATATYPES[tensor.row.name] for tensor in tensors}
    variable = type_variable(model.op, datatypes, "inputs")
    dtype = model.op.dtypes[0] if variable is None else ROWS[variable].name
    for tensor in tensors:
        expected, got = model.datatype(tensor.input.slot, dtype), datatypes[tensor.input.name]
        if got != expected:
            loc, message = ("inputs", tensor.input.name, "datatype"), "the inputs have different datatypes"
            raise wrong(loc, message, expected=expected, got=got)
    return {} if variable is None else {"dtype": dtype}


def _outputs(model: Model, items: Sequence[Any], is_binary: bool) -> list[tuple[ModelOutput, bool]]:
    """Return the requested outputs, by default all of the model's, and whether each is wanted in binary."""
    if not items:
        return [(output, is_binary) for output in model.outputs.values()]
    outputs = dict[str, tuple[ModelOutput, bool]]()
    for place, item in enumerate(items):
        name, fields = _name_and_fields(item, ("outputs", place), _OUTPUT, model.outputs, outputs)
        loc = ("outputs", name)
        own = _flag(_parameters(fields, loc, ("binary_data",)), "binary_data", (*loc, "parameters"))
        outputs[name] = model.outputs[name], is_binary if own is None else own
    return list(outputs.values())
