"""Parse a request for inference: strict JSON, followed by the bytes of binary tensors."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from app.errors import MAX_GOT, Loc, Malformed, clip, near, wrong
from app.routes.openinference.models import DATATYPES, PARAMETERS, ROWS, Model, ModelInput, ModelOutput
from app.routes.protocol import name_list, type_variables
from app.runtime.owned_cache import OwnedCache
from app.tensors.casting import Loss, Numbers, bools, describe
from app.tensors.dtypes import DType
from app.tensors.fast_json import Parse, Place, parse_bare
from app.tensors.json import read_shape
from app.tensors.strict_json import Body

# The longest JSON, in bytes, whose parsed form is cached.
SHORT = 1 << 12
DIRECTIONS = ("tangents", "vectors")

_FIELDS = ("id", "model_name", "parameters", "inputs", "outputs")
_INPUT = ("name", "shape", "datatype", "parameters", "data")
_OUTPUT = ("name", "parameters")
MICROSECONDS = 1_000_000
# The parameters of a request that other servers know and that change nothing here. An attribute may have their names.
IGNORED = ("content_type", "headers")
# Extensions of Triton that would change the answer, by the parameter of a request or an output that asks for them.
REFUSED = {
    **dict.fromkeys(("sequence_id", "sequence_start", "sequence_end"), "sequences are not supported"),
    "classification": "classes are not supported",
}

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
        if not self.row.is_bool:
            return np.ndarray(self.shape, self.row.wire, body, lead + self.begin).astype(self.row.numpy, copy=False)
        try:
            return bools(np.ndarray(self.shape, np.uint8, body, lead + self.begin))
        except Loss as loss:
            loc = ("inputs", self.input.name, *map(int, np.unravel_index(loss.index, self.shape)))
            raise wrong(loc, loss.message, expected=loss.expected, got=loss.got) from None


class RequestedOutput(NamedTuple):
    """An output and its form: binary or JSON."""

    output: ModelOutput
    is_binary: bool


@dataclass(frozen=True)
class InferenceRequest:
    """The parsed JSON of a request.

    ``fields`` are the fields of the native request except the tensors. ``size`` is the number of bytes after the JSON.
    """

    id: str | None
    tensors: Sequence[Tensor]
    fields: Object
    outputs: Sequence[RequestedOutput]
    timeout_s: float
    size: int

    @property
    def is_binary(self) -> bool:
        """Whether all tensors of the request and of the response are binary."""
        is_input_binary = all(tensor.data is None for tensor in self.tensors)
        return is_input_binary and all(output.is_binary for output in self.outputs)

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


def _places(request: dict[str, Any]) -> Iterator[Place]:
    """Yield the places of tensors in a request."""
    inputs = request.get("inputs")
    for item in cast("list[Any]", inputs) if isinstance(inputs, list) else ():
        yield cast("dict[str, Any]", item) if isinstance(item, dict) else {}, "data", Numbers


def read_request(model: Model, raw: Body, parse: Parse) -> InferenceRequest:
    """Parse the JSON of a request to a model; raises ``Malformed`` or ``Unprocessable``."""
    fields = _object(parse(raw, _places), (), _FIELDS)
    if fields.get("model_name") not in (None, model.name):
        got = describe(fields["model_name"])
        raise wrong(("model_name",), "model_name differs from the path", expected=f"{model.name}, or none", got=got)
    parameters = parameters_of(fields, ())
    tensors, size = _tensors(model, _list(fields.get("inputs"), "inputs"))
    native = {"attrs": attrs(model, parameters)} | _type_variable(model, tensors)
    is_binary = flag(parameters, "binary_data_output", ("parameters",))
    outputs = _outputs(model, _list(fields.get("outputs"), "outputs"), bool(is_binary), _absent(model, tensors))
    native |= model.selection(requested.output for requested in outputs)
    if not isinstance(request_id := fields.get("id"), str | None):
        raise wrong(("id",), "expected a string", expected="a string", got=describe(request_id))
    return InferenceRequest(request_id, tensors, native, outputs, timeout_s(parameters), size)


def raw_request(model: Model, size: int) -> InferenceRequest:
    """Return the request whose body has no JSON: it is the ``size`` bytes of the model's only input.

    The metadata of the model states the input's datatype and shape, in which the size determines the only -1. The
    response is binary. Raises ``Unprocessable`` if the model has several inputs, or if no shape has this size.
    """
    inputs: list[dict[str, Any]] = model.metadata()["inputs"]
    if len(inputs) > 1:
        expected, got = "JSON before the tensors, because the model has several", name_list(model.inputs)
        raise wrong(("inputs",), "missing JSON", expected=expected, got=f"none for {got}")
    [tensor] = inputs
    row, shape = ROWS[tensor["datatype"]], tuple[int, ...](tensor["shape"])
    row_size = math.prod(length for length in shape if length >= 0) * row.itemsize
    length, rest = divmod(size, row_size) if row_size else (0, size)
    if rest or shape.count(-1) > 1 or (-1 not in shape and length != 1):
        expected = f"the bytes of one tensor of {row.datatype}, of the shape {list(shape)} with at most one -1"
        raise wrong(("inputs", tensor["name"]), "size mismatch", expected=expected, got=f"{size} bytes")
    sizes = tuple(length if size < 0 else size for size in shape)
    tensors = [Tensor(model.inputs[tensor["name"]], row, sizes, 0, None)]
    outputs = _outputs(model, (), is_binary=True, absent=_absent(model, tensors))
    fields = {"attrs": dict[str, Any]()} | model.selection(model.outputs.values()) | _type_variable(model, tensors)
    return InferenceRequest(None, tensors, fields, outputs, math.inf, size)


_known = OwnedCache[bytes, InferenceRequest](256)


def known_request(model: Model, raw: bytes) -> InferenceRequest:
    """Return ``read_request`` from a cache: a client that repeats a request sends the same JSON each time."""
    known = _known.get(model, raw)
    return known or _known.keep(model, raw, read_request(model, raw, parse_bare))


def _object(value: Any, loc: Loc, known: Sequence[str]) -> Object:
    """Return an object whose keys are all ``known``."""
    if not isinstance(value, dict):
        raise wrong(loc, "expected an object", expected="an object", got=describe(value))
    fields = cast("dict[str, Any]", value)
    for name in fields:
        if name not in known:
            raise wrong((*loc, name), "unknown field", expected=near(name, known), got=name)
    return fields


def _list(value: Any, field: str) -> list[Any]:
    if not isinstance(value, list | None):
        raise wrong((field,), "expected a list of tensors", expected="a list of tensors", got=describe(value))
    return cast("list[Any]", value or [])


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
    fields = _object(item, loc, keys)
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
    parameters = parameters_of(fields, loc)
    refuse_extensions(parameters, (*loc, "parameters"))
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
            expected = f"all of {', '.join(slot.name for slot in model.op.inputs if not slot.optional)}"
            raise wrong(("inputs",), f"missing input {name}", expected=expected, got=name_list(tensors))
    directions = [name for name, model_input in model.inputs.items() if model_input.field in DIRECTIONS]
    if directions and not any(name in tensors for name in directions):
        expected = f"at least one of {name_list(directions)}"
        raise wrong(("inputs",), "missing direction", expected=expected, got=name_list(tensors))


def _type_variable(model: Model, tensors: Sequence[Tensor]) -> dict[str, str]:
    """Return the field ``dtype`` of the native request; raises ``Unprocessable`` if the tensors' datatypes disagree."""
    datatypes = {tensor.input.name: DATATYPES[tensor.row.name] for tensor in tensors}
    variable, second = type_variables(model.op, datatypes, "inputs")
    dtype = model.op.dtypes[0] if variable is None else ROWS[variable].name
    other = "" if second is None else ROWS[second].name
    for tensor in tensors:
        expected, got = model.datatype(tensor.input.slot, dtype, other), datatypes[tensor.input.name]
        if got != expected:
            loc, message = ("inputs", tensor.input.name, "datatype"), "the inputs have different datatypes"
            raise wrong(loc, message, expected=expected, got=got)
    return {} if variable is None else {"dtype": dtype}


def _absent(model: Model, tensors: Sequence[Tensor]) -> Collection[str]:
    return model.absent([tensor.input.slot.name for tensor in tensors if tensor.input.field == "inputs"])


def _outputs(model: Model, items: Sequence[Any], is_binary: bool, absent: Collection[str]) -> list[RequestedOutput]:
    """Return the requested outputs, by default all that exist; those that state no format are ``is_binary``."""
    if not items:
        return [RequestedOutput(output, is_binary) for name, output in model.outputs.items() if name not in absent]
    outputs = dict[str, RequestedOutput]()
    for place, item in enumerate(items):
        name, fields = _name_and_fields(item, ("outputs", place), _OUTPUT, model.outputs, outputs)
        if name in absent:
            expected = f"one of {name_list([name for name in model.outputs if name not in absent])}"
            raise wrong(("outputs", name), "it belongs to an input that is not sent", expected=expected, got=name)
        loc = ("outputs", name, "parameters")
        parameters = parameters_of(fields, loc[:-1])
        refuse_extensions(parameters, loc)
        own = flag(parameters, "binary_data", loc)
        outputs[name] = RequestedOutput(model.outputs[name], is_binary if own is None else own)
    return list(outputs.values())


# The protocol leaves parameters to the extensions of servers. Those of a tensor or of an output that the service does
# not know are ignored, because clients add their own: MLServer's codecs label every tensor with ``content_type``.
# Those of a request are attributes of the op, and a misspelt attribute would change the numbers silently, so others
# are refused.
def parameters_of(fields: Object, loc: Loc) -> Object:
    """Return the parameters of a request, a tensor or an output, empty if they are missing or null."""
    value = fields.get("parameters")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise wrong((*loc, "parameters"), "expected an object", expected="an object", got=describe(value))
    return cast("dict[str, Any]", value)


def refuse_extensions(parameters: Object, loc: Loc) -> None:
    """Raise ``Unprocessable`` for shared memory, sequences and classes, which clients turn off by 0, "" or false."""
    for name, value in parameters.items():
        if name in REFUSED and (value or not isinstance(value, int | str | None)):
            raise wrong((*loc, name), REFUSED[name], expected="no such parameter, or 0", got=describe(value))
        if name.startswith("shared_memory_"):
            expected = "binary data in the body"
            raise wrong((*loc, name), "shared memory is not supported", expected=expected, got=clip(name, MAX_GOT))


def attrs(model: Model, parameters: Object) -> dict[str, Any]:
    """Return the attributes among the parameters of a request; raises ``Unprocessable`` for unknown parameters."""
    known, found = model.op.attrs.model_fields, dict[str, Any]()
    for name, value in parameters.items():
        if name in known:
            found[name] = value
        elif name not in PARAMETERS and name not in IGNORED and name not in REFUSED:
            raise wrong(("parameters", name), "unknown parameter", expected=near(name, known), got=name)
    refuse_extensions({name: value for name, value in parameters.items() if name not in known}, ("parameters",))
    _whole(parameters, "priority", ("parameters",))
    return found


def timeout_s(parameters: Object) -> float:
    """Return the timeout of a request in seconds, infinite if it has none, or 0 as Triton's clients send."""
    return (_whole(parameters, "timeout", ("parameters",)) / MICROSECONDS) or math.inf


def flag(parameters: Object, name: str, loc: Loc) -> bool | None:
    """Return a parameter that is true or false, ``None`` if it is missing or null."""
    value = parameters.get(name)
    if not isinstance(value, bool | None):
        raise wrong((*loc, name), "expected a bool", expected="true or false", got=describe(value))
    return value


def _whole(parameters: Object, name: str, loc: Loc) -> int:
    value = parameters.get(name, 0)
    if type(value) is not int or value < 0:
        raise wrong((*loc, name), "expected an integer", expected="an integer from 0", got=describe(value))
    return value
