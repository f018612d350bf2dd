"""The bodies of requests: JSON with small tensors in base64, safetensors with large ones."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from pullback import safetensors
from pullback.arrays import base64, encode, name_of, plain
from pullback.dtypes import DTYPES, Array
from pullback.errors import BadArgument
from pullback.safetensors import Buffer

JSON = "application/json"
BINARY_BYTES = 1 << 12
"""From this many bytes of arrays on, a request in safetensors is faster than one in JSON, and so is its response."""
CHUNK = 1 << 20
DTYPE_TYPES = (np.generic, float, complex)
"""The types that stand for a dtype, as in NumPy: ``np.float32``, ``float``."""


class Body(NamedTuple):
    """A body, in pieces that are sent one after the other; arrays are not copied."""

    media_type: str
    pieces: tuple[Buffer, ...]

    @property
    def size(self) -> int:
        """The length in bytes."""
        return sum(map(len, self.pieces))

    def chunks(self) -> Iterator[Buffer]:
        """Yield the pieces in chunks of bounded length."""
        for piece in self.pieces:
            for start in range(0, len(piece), CHUNK):
                yield memoryview(piece)[start : start + CHUNK]

    @property
    def content(self) -> bytes | Iterator[bytes]:
        """The argument ``content`` of httpx."""
        return bytes(self.pieces[0]) if len(self.pieces) == 1 else map(bytes, self.chunks())

    @property
    def async_content(self) -> bytes | AsyncIterator[bytes]:
        """The argument ``content`` of an httpx client for asyncio."""
        return bytes(self.pieces[0]) if len(self.pieces) == 1 else self._async_chunks()

    async def _async_chunks(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks():
            yield bytes(chunk)


TensorsByField: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Tensors by field and name: arrays, or JSON values for those without a dtype."""
Layout: TypeAlias = tuple[tuple[str, tuple[tuple[str, np.dtype[Any], tuple[int, ...]], ...]], ...]
"""Fields, each with the names, dtypes and shapes of its arrays."""


def write(fields: Mapping[str, Any], tensors: TensorsByField) -> Body:
    """Return the body of a request, without the fields that are ``None``: the service has the defaults.

    Raises ``BadArgument`` for a value that JSON cannot hold.
    """
    values = [x for named in tensors.values() for x in named.values()]
    arrays: list[Array] = [x for x in values if is_array(x)]
    if sum(array.nbytes for array in arrays) >= BINARY_BYTES and all(DTYPES[name_of(x.dtype)].code for x in arrays):
        return _write_binary(fields, tensors) or write_json(fields, tensors)
    return _write_by_template(fields, tensors, arrays) if len(arrays) == len(values) else write_json(fields, tensors)


def write_json(fields: Mapping[str, Any], tensors: TensorsByField) -> Body:
    """Return the body of a request in JSON, with its arrays in base64."""
    encoded = {
        field: {name: encode(x) if is_array(x) else x for name, x in named.items()} for field, named in tensors.items()
    }
    return Body(JSON, (_dump({**fields, **encoded}),))


def is_array(value: Any) -> bool:
    """Report whether a tensor is an array, not JSON."""
    return isinstance(value, np.ndarray)


def _write_binary(fields: Mapping[str, Any], tensors: TensorsByField) -> Body | None:
    """Return the body in safetensors; ``None`` if its header is longer than the service allows."""
    arrays = {f"{field}/{name}": x for field, named in tensors.items() for name, x in named.items() if is_array(x)}
    rest = {field: {name: x for name, x in named.items() if not is_array(x)} for field, named in tensors.items()}
    pieces = safetensors.write(arrays, _dump({**fields, **rest}).decode())
    return Body(safetensors.MEDIA_TYPE, tuple(pieces)) if len(pieces[0]) <= safetensors.MAX_HEADER else None


def _write_by_template(fields: Mapping[str, Any], tensors: TensorsByField, arrays: Sequence[Array]) -> Body:
    """Return the body in JSON; of calls that differ only in their numbers and attributes, the rest is written once."""
    layout = [
        (field, tuple([(name, x.dtype, x.shape) for name, x in named.items()])) for field, named in tensors.items()
    ]
    try:
        template = _template(tuple(layout), **{**fields, "attrs": None})
    except TypeError:
        # A field that cannot be hashed, such as an order that is an array.
        return write_json(fields, tensors)
    attrs = fields.get("attrs")
    pieces = [b"{" if attrs is None else _dump({"attrs": attrs})[:-1] + b","]
    for piece, array in zip(template, arrays, strict=False):
        pieces += (piece, base64(array))
    return Body(JSON, (b"".join((*pieces, template[-1])),))


@lru_cache(maxsize=256, typed=True)
def _template(layout: Layout, /, **fields: Any) -> tuple[bytes, ...]:
    """Return the JSON of a body after its first brace, split where the data of the arrays belong."""
    tensors = {
        field: {name: {"dtype": name_of(dtype), "shape": shape, "base64": ""} for name, dtype, shape in named}
        for field, named in layout
    }
    # Within a string, the quotation marks would be escaped, and so would be a null byte.
    return tuple(_dump({**fields, **tensors})[1:].replace(b'"base64":""', b'"base64":"\0"').split(b"\0"))


def _dump(document: Mapping[str, Any]) -> bytes:
    fields = {key: value for key, value in document.items() if value is not None}
    if "attrs" in fields:
        fields["attrs"] = {name: plain(value) for name, value in fields["attrs"].items()}
    try:
        return _ENCODER.encode(fields).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadArgument(f"cannot write an argument as JSON: {error}") from error


def _scalar(value: Any) -> Any:
    """Return a NumPy scalar, such as an order or a seed, as a Python number, and a dtype as its name."""
    given: Any = value
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, DTYPE_TYPES)):
        return np.dtype(given).name
    try:
        return given.item()
    except AttributeError:
        raise TypeError(f"expected numbers, strings, lists or arrays, got {type(given).__name__}") from None


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_scalar)
