r"""Tensors in safetensors: a JSON header with the offsets of each, then their bytes, little-endian, row-major.

A name is a path. In a request it is ``field/name``: ``inputs/x``, ``cotangents/y``. The header's ``__metadata__`` has
the other fields of the request, as JSON under ``pullback``; small tensors may be there too, in their JSON forms::

    {"__metadata__": {"pullback": "{\"dtype\": \"float64\"}"},
     "inputs/x": {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]}}

In a response it has a part for each level of nesting: ``outputs/y``, ``hessian/x/x``. Tensors are typed, and never
cast.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
import orjson
from numpy.typing import NDArray

from app.errors import Malformed, clip, wrong
from app.tensors import dtypes, strict_json
from app.tensors.casting import ALIGNMENT, Document, Loss, bools, describe
from app.tensors.dtypes import MAX_BYTES, MAX_DIMENSION, MAX_RANK, ROWS, DType
from app.tensors.json import FIELDS
from app.tensors.layouts import Layout, Placeholder
from app.tensors.strict_json import Body

MEDIA_TYPE = "application/vnd.safetensors"
MAX_HEADER, MAX_TENSORS = 1 << 20, 64
# Headers up to this length are cached; most requests have one.
SHORT_HEADER = 1 << 12

LENGTH = 8
_METADATA, _OURS = "__metadata__", "pullback"
_KEYS = ("dtype", "shape", "data_offsets")
_ROWS: Mapping[str, DType] = {row.safetensors: row for row in ROWS.values() if row.safetensors}


@dataclass(frozen=True)
class TensorEntry:
    """A tensor in the header; its data are the bytes from ``begin`` to before ``end``, from the end of the header."""

    name: str
    row: DType
    shape: tuple[int, ...]
    begin: int
    end: int


def parse(body: Body) -> Document:
    """Return the document in a body, as from JSON, with arrays in place of tensors.

    The arrays are views of the body, of any alignment. Raises ``Malformed``, with the expected and actual value, for a
    body that is not strict safetensors, has names other than ``field/name`` or more than ``MAX_TENSORS`` of them, or
    has bytes other than 0 and 1 for a bool.
    """
    raw = _header(body)
    fields, entries, size = (_cached_layout if len(raw) <= SHORT_HEADER else _layout)(bytes(raw))
    start = LENGTH + len(raw)
    if size != len(body) - start:
        raise Malformed(f"expected {size} bytes of data after the header (data_offsets), got {len(body) - start}")
    document = Document(fields)
    for name, value in fields.items():
        if isinstance(value, dict):
            document[name] = dict(cast("dict[str, Any]", value))
    for entry in entries:
        _insert(document, entry.name, _array(entry, body, start + entry.begin))
    return document


def length_of_header(first: bytes) -> int:
    """Return the length of the header from the first ``LENGTH`` bytes of a body; raises ``Malformed``."""
    if len(first) < LENGTH:
        raise Malformed(f"expected safetensors: {LENGTH} bytes of header length first, got {len(first)} bytes")
    length = int.from_bytes(first, "little")
    if length > MAX_HEADER:
        raise Malformed(f"expected safetensors with a header of at most {MAX_HEADER} bytes, got {length}")
    return length


def plain_entries(raw: bytes) -> tuple[Sequence[TensorEntry], int]:
    """Return the tensors of a header whose names are any, by their places, and the size of their data in bytes.

    The metadata are ignored. Raises ``Malformed`` for a header that is not strict safetensors.
    """
    _need_brace(raw)
    header = _object(raw, "the header")
    header.pop(_METADATA, None)
    entries = sorted(
        (_plain_entry(name, value) for name, value in header.items()), key=lambda entry: (entry.begin, entry.end)
    )
    return entries, _data_size(entries)


def lay_out(tensors: Mapping[str, NDArray[Any]], fields: Mapping[str, Any]) -> Layout:
    """Return the layout of a body: the header, and a placeholder for the bytes of each array.

    ``fields`` go into the metadata. The data begin at a multiple of ``ALIGNMENT``, and the wider dtypes come first, so
    that each tensor begins at a multiple of its itemsize. Raises ``TypeError`` for a dtype that is not in the table,
    and ``Unprocessable`` for one that the format lacks.
    """
    rows = {name: dtypes.of(array.dtype) for name, array in tensors.items()}
    for name, row in rows.items():
        if not row.safetensors:
            message, expected = f"safetensors has no {row.name}", 'complex64, or JSON, with "encoding": "base64"'
            raise wrong(tuple(name.split("/")), message, expected=expected, got=row.name)
    header: dict[str, Any] = {_METADATA: {_OURS: orjson.dumps(fields).decode()}} if fields else {}
    placeholders: list[Placeholder] = []
    begin = 0
    for name, row in sorted(rows.items(), key=lambda item: -item[1].itemsize):
        array = tensors[name]
        end = begin + array.nbytes
        header[name] = {"dtype": row.safetensors, "shape": list(array.shape), "data_offsets": [begin, end]}
        placeholders.append(Placeholder(array, "bytes"))
        begin = end
    text = orjson.dumps(header)
    text += b" " * (-(LENGTH + len(text)) % ALIGNMENT)
    return Layout((len(text).to_bytes(LENGTH, "little") + text, *[b""] * len(placeholders)), tuple(placeholders))


def has_name(dtype: np.dtype[Any]) -> bool:
    """Return whether the format has a dtype; raise ``TypeError`` for one that is not in the table."""
    return bool(dtypes.of(dtype).safetensors)


def _header(body: Body) -> Body:
    """Return the bytes of the header."""
    length, rest = length_of_header(bytes(body[:LENGTH])), len(body) - LENGTH
    if length > rest:
        raise Malformed(f"expected a header of {length} bytes (from the first {LENGTH} bytes), got {rest}")
    raw = body[LENGTH : LENGTH + length]
    _need_brace(raw)
    return raw


def _need_brace(raw: Body) -> None:
    if raw[:1] != b"{":
        raise Malformed(f"expected a header that starts with {{, got {bytes(raw[:1])!r}")


def _layout(raw: bytes) -> tuple[Mapping[str, Any], Sequence[TensorEntry], int]:
    """Return the contents of a header: the fields of the request, the tensors, and the size of their data in bytes."""
    header = _object(raw, "the header")
    fields = _metadata(header.pop(_METADATA, {}))
    if len(header) > MAX_TENSORS:
        raise Malformed(f"expected at most {MAX_TENSORS} tensors, got {len(header)}")
    entries = [_entry(name, value) for name, value in header.items()]
    return fields, entries, _data_size(entries)


# Repeated requests have the same header.
_cached_layout = lru_cache(maxsize=256)(_layout)


def _object(raw: Body, where: str) -> dict[str, Any]:
    try:
        value = strict_json.parse(raw)
    except Malformed as error:
        raise Malformed(f"in {where}: {error.detail}") from None
    if not isinstance(value, dict):
        raise Malformed(f"expected an object in {where}, got {describe(value)}")
    return cast("dict[str, Any]", value)


def _metadata(value: Any) -> dict[str, Any]:
    """Return the fields of a request in the metadata."""
    if not isinstance(value, dict):
        raise Malformed(f"{_METADATA}: expected an object of strings, got {describe(value)}")
    metadata = cast("dict[str, Any]", value)
    for name, text in metadata.items():
        if not isinstance(text, str):
            raise Malformed(f"{_METADATA}.{clip(name, 64)}: expected a string, got {describe(text)}")
    return _object(metadata[_OURS].encode(), f"{_METADATA}.{_OURS}") if _OURS in metadata else {}


def _entry(name: str, value: Any) -> TensorEntry:
    field, _, slot = name.partition("/")
    if field not in FIELDS or not slot or "/" in slot:
        raise _bad(name, f"a name such as inputs/x, starting with one of {', '.join(FIELDS)}", "this name")
    return _plain_entry(name, value)


def _plain_entry(name: str, value: Any) -> TensorEntry:
    if not isinstance(value, dict):
        raise _bad(name, "an object", describe(value))
    fields = cast("dict[str, Any]", value)
    if fields.keys() != set(_KEYS):
        raise _bad(name, f"the keys {', '.join(_KEYS)}", clip(", ".join(fields), 64) or "none")
    row = _ROWS.get(fields["dtype"]) if isinstance(fields["dtype"], str) else None
    if row is None:
        raise _bad(name, f"a dtype of {', '.join(_ROWS)}", describe(fields["dtype"]))
    shape = _shape(name, fields["shape"])
    begin, end = _offsets(name, fields["data_offsets"])
    _refuse_size(name, row, shape, end - begin)
    return TensorEntry(name, row, shape, begin, end)


def _shape(name: str, value: Any) -> tuple[int, ...]:
    if not _is_integers(value, MAX_DIMENSION) or len(value) > MAX_RANK:
        expected = f"a shape of at most {MAX_RANK} integers from 0 to {MAX_DIMENSION}"
        raise _bad(name, expected, _describe_list(value))
    return tuple(value)


def _offsets(name: str, value: Any) -> tuple[int, int]:
    match value:
        case [begin, end] if _is_integers(value, MAX_BYTES) and begin <= end:
            return begin, end
        case _:
            raise _bad(name, "data_offsets [begin, end], two integers in order", _describe_list(value))


def _is_integers(value: Any, high: int) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item <= high for item in cast("list[Any]", value))


def _refuse_size(name: str, row: DType, shape: Sequence[int], size: int) -> None:
    """Raise ``Malformed`` for data whose size does not match the shape, and for a shape that NumPy does not support."""
    if math.prod(shape) * row.itemsize != size:
        expected = f"{math.prod(shape) * row.itemsize} bytes for shape {list(shape)} of {row.safetensors}"
        raise _bad(name, expected, f"{size} bytes")
    if (product := math.prod(length for length in shape if length) * row.itemsize) > MAX_BYTES:
        raise _bad(name, "a shape of less than 2^63 bytes", f"{product}")


def _data_size(entries: Iterable[TensorEntry]) -> int:
    """Return the size of the data in bytes; raise ``Malformed`` for overlaps and gaps."""
    size = 0
    for entry in sorted(entries, key=lambda entry: (entry.begin, entry.end)):
        if entry.begin != size:
            what = "overlap" if entry.begin < size else "gap"
            raise _bad(entry.name, f"data_offsets that begin at {size}", f"{entry.begin} ({what})")
        size = entry.end
    return size


def _array(entry: TensorEntry, body: Body, at: int) -> NDArray[Any]:
    """Return the tensor whose data begin at byte ``at`` of the body, as a view."""
    if not entry.row.is_bool:
        return np.ndarray(entry.shape, entry.row.wire, body, at).astype(entry.row.numpy, copy=False)
    try:
        return bools(np.ndarray(entry.shape, np.uint8, body, at))
    except Loss as loss:
        place = [int(i) for i in np.unravel_index(loss.index, entry.shape)]
        raise _bad(entry.name, f"{loss.expected} for each bool", f"the byte {loss.got} at {place}") from None


def _insert(document: dict[str, Any], name: str, array: NDArray[Any]) -> None:
    field, _, slot = name.partition("/")
    named = document.setdefault(field, {})
    if not isinstance(named, dict):
        raise _bad(name, f"an object under {field} in {_METADATA}.{_OURS}, or no such field", describe(named))
    if slot in named:
        raise _bad(name, f"each tensor once, here or in {_METADATA}.{_OURS}", "both")
    named[slot] = array


def _describe_list(value: Any) -> str:
    """Return a short list of numbers as text; describe any other value."""
    items = cast("list[Any]", value) if isinstance(value, list) else []
    is_short = 0 < len(items) <= MAX_RANK and all(isinstance(item, int | float) for item in items)
    return clip(str(items), 64) if is_short else describe(value)


def _bad(name: str, expected: str, got: str) -> Malformed:
    return Malformed(f"tensor {clip(name, 64)}: expected {expected}, got {got}")
