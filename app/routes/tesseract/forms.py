"""Translate Tesseract's requests into fields of the native operations, and arrays from and to Tesseract's forms.

Errors name the client's fields: ``data.buffer``, ``vjp_inputs``, ``cotangent_vector``.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from app.autodiff.binding import bind_names, decode_inputs, decode_named
from app.autodiff.derived import variant_of
from app.autodiff.point import as_numbers
from app.errors import Entry, Faults, Loc, Unprocessable, near, unprocessable, wrong
from app.requests.models import MAX_NAMES
from app.requests.operations import OPERATIONS
from app.requests.plans import Fields
from app.routes.protocol import name_list, type_variables
from app.routes.tesseract.openapi import ENCODINGS, Endpoint
from app.tensors import json, layouts
from app.tensors.casting import Numbers, describe
from app.tensors.dtypes import DTYPES
from app.tensors.fast_json import Place
from app.tensors.json import Decoded
from app.tensors.layouts import Encoding
from ops import COMPLEX, Array, Input, Op, Output

Object: TypeAlias = dict[str, Any]

_ARRAY, _DATA = ("object_type", "shape", "dtype", "data"), ("buffer", "encoding", "compression")
_VECTORS = {"tangent_vector": "tangents", "cotangent_vector": "cotangents"}


class Inputs(NamedTuple):
    """The content of ``inputs``: tensors not yet decoded, attributes, and the dtype of the op's type variable.

    ``op`` is the variant of the op for these inputs.
    """

    op: Op
    tensors: Object
    attrs: Object
    dtype: str

    def dtypes(self, slots: Sequence[Input | Output]) -> dict[str, str]:
        """Return the dtype of the numbers of each input or output."""
        return {slot.name: self.op.shown_dtype_of(slot, self.dtype) for slot in slots}


class NativeRequest(NamedTuple):
    """The fields of a request to a native operation, and the outputs that the client lists, if any."""

    fields: Fields
    of: Sequence[str]


def places(op: Op, request: Object) -> Iterator[Place]:
    """Yield the places of tensors in a request."""
    for field in ("inputs", *_VECTORS):
        named = request.get(field)
        for name, value in cast(Object, named).items() if isinstance(named, dict) else ():
            if name in op.attrs.model_fields:
                continue
            yield cast(Object, named), name, Numbers
            data: Any = cast(Object, value).get("data") if isinstance(value, dict) else None
            if isinstance(data, dict):
                yield cast(Object, data), "buffer", Decoded if data.get("encoding") == "base64" else Numbers  # pyright: ignore[reportUnknownMemberType]


def read(op: Op, endpoint: Endpoint, request: Object) -> NativeRequest:
    """Return the native form of a request; raises ``Unprocessable``."""
    fields = object_at(request, (), known=endpoint.fields, needed=endpoint.fields)
    inputs = read_inputs(op, fields["inputs"])
    op = inputs.op
    wrt = _selection(op, op.inputs, inputs.dtype, fields, endpoint.inputs)
    of = _selection(op, op.outputs, inputs.dtype, fields, endpoint.outputs)
    arrays = _numbers(decode_inputs(op, inputs.tensors, inputs.dtypes(op.inputs), decode), op.inputs)
    dtype = op.shown_dtype(inputs.dtype)
    native: Object = {"inputs": arrays, "attrs": inputs.attrs, "dtype": dtype, "wrt": wrt, "of": of}
    if field := endpoint.directions:
        names, slots = (wrt, op.inputs) if endpoint.along == endpoint.inputs else (of, op.outputs)
        vectors = object_at(fields[field], (field,), known=names, needed=names)
        directions = _numbers(decode_named(vectors, inputs.dtypes(slots), decode, field), slots)
        if _VECTORS[field] == "cotangents" and op.is_complex:
            directions = {name: np.asarray(np.conj(x)) for name, x in directions.items()}
        native[_VECTORS[field]] = directions
    model_fields = OPERATIONS[endpoint.operation].request.model_fields
    return NativeRequest({name: value for name, value in native.items() if name in model_fields}, of)


def _numbers(arrays: Mapping[str, Array], slots: Sequence[Input | Output]) -> dict[str, Array]:
    """Return arrays with complex numbers in place of pairs."""
    pairs = {slot.name for slot in slots if slot.is_complex}
    return {name: as_numbers(x) if name in pairs else x for name, x in arrays.items()}


def read_inputs(op: Op, value: Any) -> Inputs:
    """Return the content of ``inputs``: all of the op's inputs that are not optional, any others and any attributes.

    Raises ``Unprocessable`` for a missing input, an unknown name, or a dtype that the input does not accept.
    """
    slots, attributes = [slot.name for slot in op.inputs], op.attrs.model_fields
    needed = [slot.name for slot in op.inputs if not slot.optional]
    fields = object_at(value, ("inputs",), known=[*slots, *attributes], needed=needed)
    attrs = {name: _attribute(value, ("inputs", name)) for name, value in fields.items() if name in attributes}
    tensors = {name: fields[name] for name in slots if name in fields}
    return Inputs(variant_of(op, json.dtypes_of(tensors)), tensors, attrs, _dtype(op, tensors))


def object_at(value: Any, loc: Loc, *, known: Collection[str], needed: Collection[str]) -> Object:
    """Return ``value`` as an object that has all ``needed`` fields and only ``known`` ones.

    Raises ``Unprocessable`` at ``loc``, with an entry for each missing or unknown field.
    """
    if not isinstance(value, dict):
        raise wrong(loc, "expected an object", expected=f"an object with {name_list(needed)}", got=describe(value))
    fields, faults = cast(Object, value), Faults()
    if len(fields) > MAX_NAMES:
        raise wrong(loc, "too many fields", expected=f"at most {MAX_NAMES} fields", got=str(len(fields)))
    for name in fields:
        if name not in known:
            faults.add((*loc, name), "unknown field", expected=near(name, known), got=name)
    for name in needed:
        if name not in fields:
            faults.add((*loc, name), "missing field", expected=f"the field {name}", got="nothing")
    faults.check()
    return fields


def decode(value: Any, dtype: str, loc: Loc) -> Array:
    """Return the array for a number, a nested list or a typed form; its dtype is exactly ``dtype``.

    Raises ``Unprocessable`` as ``app.tensors.json.decode`` does.
    """
    if not isinstance(value, dict):
        return json.decode(value, dtype, loc)
    array = object_at(cast(Object, value), loc, known=_ARRAY, needed=_ARRAY[1:])
    refuse_object_type(array, loc)
    data = object_at(array["data"], (*loc, "data"), known=_DATA, needed=_DATA[:2])
    _check_data(data, (*loc, "data"))
    key = "base64" if data["encoding"] == "base64" else "data"
    try:
        return json.decode({"dtype": array["dtype"], "shape": array["shape"], key: data["buffer"]}, dtype, loc)
    except Unprocessable as error:
        raise unprocessable([_client_entry(entry, len(loc)) for entry in error.entries]) from None


def refuse_object_type(array: Object, loc: Loc) -> None:
    """Raise ``Unprocessable`` for an ``object_type`` other than array."""
    if (kind := array.get("object_type", "array")) != "array":
        raise wrong((*loc, "object_type"), "expected an array", expected='"array"', got=describe(kind))


def encode(array: Array, encoding: Encoding) -> Object:
    """Return the typed form of an array, with its data encoded by ``app.tensors.layouts.encode``."""
    typed = layouts.encode(array, encoding)
    is_base64 = encoding == "base64"
    data = {"buffer": typed["base64" if is_base64 else "data"], "encoding": "base64" if is_base64 else "json"}
    return {"object_type": "array", "shape": typed["shape"], "dtype": typed["dtype"], "data": data}


def _selection(op: Op, slots: Sequence[Input | Output], dtype: str, fields: Object, field: str) -> list[str]:
    """Return the names that ``field`` lists, in the op's order; all must be differentiable in ``dtype``."""
    if not field:
        return []
    names = fields[field]
    if not isinstance(names, list) or len(cast(list[Any], names)) > MAX_NAMES:
        expected = f"a list of at most {MAX_NAMES} names"
        raise wrong((field,), "expected a list of names", expected=expected, got=describe(names))
    listed, faults = cast(list[Any], names), Faults()
    for i, name in enumerate(listed):
        if not isinstance(name, str):
            faults.add((field, i), "expected a string", expected="a string", got=describe(name))
    faults.check()
    every = op.general.inputs if slots is op.inputs else op.general.outputs
    selected, sent = bind_names(listed, every, field), [slot.name for slot in slots]
    live = [slot.name for slot in slots if op.is_differentiable(slot, dtype)]
    for i, name in enumerate(listed):
        if name not in live:
            expected = f"a name that is differentiable in {dtype} ({name_list(live)})"
            why = "not differentiable" if name in sent else "it belongs to an input that is not sent"
            faults.add((field, i), why, expected=expected, got=name)
    faults.check()
    return list(selected)


def _dtype(op: Op, tensors: Mapping[str, Any]) -> str:
    """Return the dtype of the op's type variable: that of the typed inputs, the op's first if there are none."""
    faults, dtypes = Faults(), dict[str, str]()
    for slot in op.inputs:
        value = tensors.get(slot.name)
        if not isinstance(value, dict) or "dtype" not in value:
            continue
        dtype = cast(Object, value)["dtype"]
        if dtype not in slot.shown_dtypes:
            expected = f"one of {', '.join(slot.shown_dtypes)}"
            message = f"op {op.name} does not accept this dtype, and arrays are not cast"
            got = dtype if isinstance(dtype, str) else describe(dtype)
            faults.add(("inputs", slot.name, "dtype"), message, expected=expected, got=got)
        else:
            dtypes[slot.name] = COMPLEX.get(dtype, dtype)
    faults.check()
    return type_variables(op, dtypes, "inputs")[0] or op.dtypes[0]


def _attribute(value: Any, loc: Loc) -> Any:
    """Return the value of an attribute; clients may send it as an array of rank 0."""
    if not isinstance(value, dict):
        return value
    array = object_at(cast(Object, value), loc, known=_ARRAY, needed=_ARRAY[1:])
    if not isinstance(array["dtype"], str) or array["dtype"] not in DTYPES:
        expected = f"one of {', '.join(DTYPES)}"
        raise wrong((*loc, "dtype"), "unknown dtype", expected=expected, got=describe(array["dtype"]))
    scalar = decode(array, array["dtype"], loc)
    if scalar.ndim:
        message = "an attribute has one value in a call"
        raise wrong((*loc, "shape"), message, expected="[]", got=str(list(scalar.shape)))
    return scalar.item()


def _check_data(data: Object, loc: Loc) -> None:
    """Raise ``Unprocessable`` for data in a file or in a GPU's memory, and for compressed data."""
    if data["encoding"] not in ENCODINGS:
        message = "data must be in the request body"
        got = describe(data["encoding"])
        raise wrong((*loc, "encoding"), message, expected=f"one of {', '.join(ENCODINGS)}", got=got)
    if data.get("compression") is not None:
        got = describe(data["compression"])
        raise wrong((*loc, "compression"), "compressed data is not supported", expected="no compression", got=got)


def _client_entry(entry: Entry, depth: int) -> Entry:
    """Return an entry about a native typed form, located at ``depth``, with its location in the client's form."""
    before, part, after = entry.loc[:depth], entry.loc[depth : depth + 1], entry.loc[depth + 1 :]
    if part in (("data",), ("base64",)):
        return replace(entry, loc=(*before, "data", "buffer", *after))
    return entry
