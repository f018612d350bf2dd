r"""Tensors in safetensors: a JSON header that says where each lies, then their bytes, little-endian, row-major.

A name is a path. In, it is ``field/name``: ``inputs/x``, ``cotangents/y``. What else a request says stands in the
header's ``__metadata__``, as JSON under ``pullback``, where small tensors may be too, in their JSON forms::

    {"__metadata__": {"pullback": "{\"dtype\": \"float64\"}"},
     "inputs/x": {"dtype": "F64", "shape": [2], "data_offsets": [0, 16]}}

Out, it is as long as the answer is deep: ``outputs/y``, ``hessian/x/x``. Typed tensors, these too are never cast.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
import orjson
from numpy.typing import NDArray

from app.errors import Malformed, clip
from app.tensors import dtypes, strict_json
from app.tensors.casting import Loss, bools, describe
from app.tensors.dtypes import DTYPES, MAX_BYTES, MAX_DIMENSION, MAX_RANK, DType
from app.tensors.memory import ALIGNMENT
from app.tensors.strict_json import Body

MEDIA_TYPE = "application/vnd.safetensors"
FIELDS = ("inputs", "cotangents", "tangents", "vectors")
MAX_HEADER, MAX_TENSORS = 1 << 20, 64
# A header like most, which is read once and remembered.
SHORT_HEADER = 1 << 12

_LENGTH = 8
_METADATA, _OURS = "__metadata__", "pullback"
_KEYS = ("dtype", "shape", "data_offsets")
_ROWS: Mapping[str, DType] = {row.safetensors: row for row in DTYPES.values()}


@dataclass(frozen=True)
class _Entry:
    """A tensor as the header has it; its data run from ``begin`` to before ``end``, counted from the header's end."""

    name: str
    row: DType
    shape: tuple[int, ...]
    begin: int
    end: int


def parse(body: Body) -> dict[str, Any]:
    """Return the document that a body stands for, as JSON would give it, with arrays in place of tensors.

    The arrays are views of the body, at whatever address. Raises ``Malformed``, with what was expected and what came,
    for what is not strict safetensors, has names other than ``field/name``, or more than ``MAX_TENSORS`` of them, or
    bytes other than 0 and 1 for a bool.
    """
    raw = _header(body)
    fields, entries, size = (_known_layout if len(raw) <= SHORT_HEADER else _layout)(bytes(raw))
    start = _LENGTH + len(raw)
    if size != len(body) - start:
        raise Malformed(f"expected {size} bytes of data after the header (data_offsets), got {len(body) - start}")
    found = {name: dict(cast("Any", value)) if isinstance(value, dict) else value for name, value in fields.items()}
    for entry in entries:
        _put(found, entry.name, _array(entry, body, start + entry.begin))
    return found


def write(tensors: Mapping[str, NDArray[Any]], fields: Mapping[str, Any]) -> list[Body]:
    """Return the pieces of a body: the header, then the bytes of each array, not copied where they lie as they must.

    ``fields`` go into the metadata. The data begin at a multiple of ``ALIGNMENT``, and the wider numbers come first, so
    that each tensor lies at a multiple of its itemsize. Raises ``TypeError`` for a dtype that is not in the table.
    """
    rows = {name: dtypes.of(array.dtype) for name, array in tensors.items()}
    header: dict[str, Any] = {_METADATA: {_OURS: orjson.dumps(fields).decode()}} if fields else {}
    pieces: list[Body] = []
    begin = 0
    for name, row in sorted(rows.items(), key=lambda item: -item[1].itemsize):
        array: NDArray[Any] = np.asarray(tensors[name], row.wire, order="C")
        end = begin + array.nbytes
        header[name] = {"dtype": row.safetensors, "shape": list(array.shape), "data_offsets": [begin, end]}
        pieces.append(array.reshape(-1).view(np.uint8).data)
        begin = end
    text = orjson.dumps(header)
    text += b" " * (-(_LENGTH + len(text)) % ALIGNMENT)
    return [len(text).to_bytes(_LENGTH, "little") + text, *pieces]


def _header(body: Body) -> Body:
    """Return the bytes of the header."""
    if len(body) < _LENGTH:
        raise Malformed(f"expected safetensors: {_LENGTH} bytes of header length first, got {len(body)} bytes")
    length, rest = int.from_bytes(body[:_LENGTH], "little"), len(body) - _LENGTH
    if length > MAX_HEADER:
        raise Malformed(f"expected safetensors with a header of at most {MAX_HEADER} bytes, got {length}")
    if length > rest:
        raise Malformed(f"expected a header of {length} bytes (from the first {_LENGTH} bytes), got {rest}")
    raw = body[_LENGTH : _LENGTH + length]
    if raw[:1] != b"{":
        raise Malformed(f"expected a header that starts with {{, got {bytes(raw[:1])!r}")
    return raw


def _layout(raw: bytes) -> tuple[Mapping[str, Any], Sequence[_Entry], int]:
    """Return what a header says: the fields of the request in it, its tensors, and how many bytes of data they are."""
    header = _object(raw, "the header")
    fields = _metadata(header.pop(_METADATA, {}))
    if len(header) > MAX_TENSORS:
        raise Malformed(f"expected at most {MAX_TENSORS} tensors, got {len(header)}")
    entries = [_entry(name, value) for name, value in header.items()]
    return fields, entries, _end(entries)


# Who asks for the same again and again sends the same header each time.
_known_layout = lru_cache(maxsize=256)(_layout)


def _object(raw: Body, where: str) -> dict[str, Any]:
    try:
        found = strict_json.parse(raw)
    except Malformed as error:
        raise Malformed(f"in {where}: {error.detail}") from None
    if not isinstance(found, dict):
        raise Malformed(f"expected an object in {where}, got {describe(found)}")
    return cast("dict[str, Any]", found)


def _metadata(value: Any) -> dict[str, Any]:
    """Return the fields of a request that the metadata have."""
    if not isinstance(value, dict):
        raise Malformed(f"{_METADATA}: expected an object of strings, got {describe(value)}")
    metadata = cast("dict[str, Any]", value)
    for name, text in metadata.items():
        if not isinstance(text, str):
            raise Malformed(f"{_METADATA}.{clip(name, 64)}: expected a string, got {describe(text)}")
    return _object(metadata[_OURS].encode(), f"{_METADATA}.{_OURS}") if _OURS in metadata else {}


def _entry(name: str, value: Any) -> _Entry:
    field, _, slot = name.partition("/")
    if field not in FIELDS or not slot or "/" in slot:
        raise _bad(name, f"a name such as inputs/x, starting with one of {', '.join(FIELDS)}", "this name")
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
    return _Entry(name, row, shape, begin, end)


def _shape(name: str, value: Any) -> tuple[int, ...]:
    if not _is_integers(value, MAX_DIMENSION) or len(value) > MAX_RANK:
        expected = f"a shape of at most {MAX_RANK} integers from 0 to {MAX_DIMENSION}"
        raise _bad(name, expected, _shown(value))
    return tuple(value)


def _offsets(name: str, value: Any) -> tuple[int, int]:
    match value:
        case [begin, end] if _is_integers(value, MAX_BYTES) and begin <= end:
            return begin, end
        case _:
            raise _bad(name, "data_offsets [begin, end], two integers in order", _shown(value))


def _is_integers(value: Any, high: int) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item <= high for item in cast("list[Any]", value))


def _refuse_size(name: str, row: DType, shape: Sequence[int], size: int) -> None:
    """Refuse data that are not as long as the shape says, and a shape that NumPy cannot have even when it is empty."""
    if math.prod(shape) * row.itemsize != size:
        expected = f"{math.prod(shape) * row.itemsize} bytes for shape {list(shape)} of {row.safetensors}"
        raise _bad(name, expected, f"{size} bytes")
    if (vast := math.prod(length for length in shape if length) * row.itemsize) > MAX_BYTES:
        raise _bad(name, "a shape of less than 2^63 bytes", f"{vast}")


def _end(entries: Iterable[_Entry]) -> int:
    """Return where the data end; refuse those that overlap, or that nobody names."""
    reached = 0
    for entry in sorted(entries, key=lambda entry: (entry.begin, entry.end)):
        if entry.begin != reached:
            what = "overlap" if entry.begin < reached else "gap"
            raise _bad(entry.name, f"data_offsets that begin at {reached}", f"{entry.begin} ({what})")
        reached = entry.end
    return reached


def _array(entry: _Entry, body: Body, at: int) -> NDArray[Any]:
    """Return the tensor whose data begin ``at`` a place in the body, as a view of it."""
    if not entry.row.is_bool:
        return np.ndarray(entry.shape, entry.row.wire, body, at).astype(entry.row.numpy, copy=False)
    try:
        return bools(np.ndarray(entry.shape, np.uint8, body, at))
    except Loss as loss:
        place = [int(i) for i in np.unravel_index(loss.index, entry.shape)]
        raise _bad(entry.name, f"{loss.expected} for each bool", f"the byte {loss.got} at {place}") from None


def _put(found: dict[str, Any], name: str, array: NDArray[Any]) -> None:
    field, _, slot = name.partition("/")
    named = found.setdefault(field, {})
    if not isinstance(named, dict):
        raise _bad(name, f"an object under {field} in {_METADATA}.{_OURS}, or no such field", describe(named))
    if slot in named:
        raise _bad(name, f"each tensor once, here or in {_METADATA}.{_OURS}", "both")
    named[slot] = array


def _shown(value: Any) -> str:
    """Return a short list of numbers as it is; what may be long or deep is described."""
    items = cast("list[Any]", value) if isinstance(value, list) else []
    is_short = 0 < len(items) <= MAX_RANK and all(isinstance(item, int | float) for item in items)
    return clip(str(items), 64) if is_short else describe(value)


def _bad(name: str, expected: str, got: str) -> Malformed:
    return Malformed(f"tensor {clip(name, 64)}: expected {expected}, got {got}")
