"""Safetensors: a JSON header with the offsets of each tensor, then their bytes, little-endian and row-major.

The name of a tensor is its path in the JSON document: ``inputs/x``, ``gradients/1/x``. Everything else of the document
is JSON in the header's ``__metadata__``, under ``pullback``.
"""

import json
import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from pullback.arrays import little_endian, name_of, native, wire
from pullback.dtypes import DTYPES, Array

Buffer: TypeAlias = bytes | bytearray | memoryview

MEDIA_TYPE = "application/vnd.safetensors"
ALIGNMENT = 64
MAX_HEADER = 1 << 20
"""The limit of the service on the length of a header, in bytes."""

_LENGTH = 8
_METADATA, _OURS = "__metadata__", "pullback"
_NAMES = {dtype.code: name for name, dtype in DTYPES.items() if dtype.code}


def write(tensors: Mapping[str, Array], fields: str) -> list[Buffer]:
    """Return the pieces of a body: the header, then the bytes of each array; ``fields`` is JSON.

    An array is copied only if it is not row-major and little-endian. Wider dtypes come first, so that each tensor
    begins at a multiple of its itemsize.
    """
    header: dict[str, Any] = {_METADATA: {_OURS: fields}}
    pieces: list[Buffer] = []
    begin = 0
    for path, array in sorted(tensors.items(), key=lambda item: -item[1].itemsize):
        data = np.asarray(array, little_endian(array.dtype), order="C").reshape(-1).view(np.uint8).data
        entry = {"dtype": DTYPES[name_of(array.dtype)].code, "shape": list(array.shape)}
        header[path] = {**entry, "data_offsets": [begin, begin + data.nbytes]}
        pieces.append(data)
        begin += data.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(_LENGTH + len(text)) % ALIGNMENT)
    return [len(text).to_bytes(_LENGTH, "little") + text, *pieces]


def read(body: Buffer) -> dict[str, Any]:
    """Return the document in a body, with arrays in place of tensors.

    The arrays are writable. They share the memory of ``body`` if it is writable too. Raises ``KeyError``,
    ``TypeError``, ``ValueError`` or ``AttributeError`` for a body that is not safetensors.
    """
    view = memoryview(bytearray(body) if memoryview(body).readonly else body)
    start = _LENGTH + int.from_bytes(view[:_LENGTH], "little")
    header = json.loads(bytes(view[_LENGTH:start]))
    metadata = header.pop(_METADATA, {})
    document: dict[str, Any] = json.loads(metadata.get(_OURS, "{}"))
    for path, entry in header.items():
        *parents, name = path.split("/")
        group = document
        for parent in parents:
            group = group.setdefault(parent, {})
        group[name] = _tensor(view[start:], entry)
    return document


def _tensor(data: memoryview, entry: Mapping[str, Any]) -> Array:
    name, shape, (begin, end) = _NAMES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
    dtype = wire(name)
    if not 0 <= begin <= end <= len(data) or end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"expected {shape} of {name} within {len(data)} bytes, got the offsets {begin} and {end}")
    array = np.ndarray(shape, dtype, data, begin)
    return native(array if array.flags.aligned else array.copy(), name)
