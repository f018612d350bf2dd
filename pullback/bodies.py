"""The bodies of requests: JSON with small tensors in base64, safetensors with large ones."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback import safetensors
from pullback.arrays import encode, plain
from pullback.errors import BadArgument
from pullback.safetensors import Buffer

JSON = "application/json"
BINARY_BYTES = 1 << 12
"""From this many bytes of arrays on, a request in safetensors is faster than one in JSON, and so is its response."""
CHUNK = 1 << 20


@dataclass(frozen=True)
class Body:
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


Tensors = Mapping[str, Mapping[str, Any] | None]
"""Tensors by field and name: arrays, or what has no dtype as JSON values."""


def write(fields: Mapping[str, Any], tensors: Tensors) -> Body:
    """Return the body of a request, without the fields that are ``None``: the service has the defaults.

    Raises ``BadArgument`` for a value that JSON cannot hold.
    """
    given = {field: named for field, named in tensors.items() if named is not None}
    arrays = {f"{field}/{name}": x for field, named in given.items() for name, x in named.items() if is_array(x)}
    if sum(array.nbytes for array in arrays.values()) >= BINARY_BYTES:
        rest = {field: {name: x for name, x in named.items() if not is_array(x)} for field, named in given.items()}
        pieces = safetensors.write(arrays, _dump({**fields, **rest}).decode())
        if len(pieces[0]) <= safetensors.MAX_HEADER:
            return Body(safetensors.MEDIA_TYPE, tuple(pieces))
    return write_json(fields, tensors)


def write_json(fields: Mapping[str, Any], tensors: Tensors) -> Body:
    """Return the body of a request in JSON, with its arrays in base64."""
    encoded = {
        field: None if named is None else {name: encode(x) if is_array(x) else x for name, x in named.items()}
        for field, named in tensors.items()
    }
    return Body(JSON, (_dump({**fields, **encoded}),))


def is_array(value: Any) -> bool:
    """Report whether a tensor is an array, not JSON."""
    return isinstance(value, np.ndarray)


def _dump(document: Mapping[str, Any]) -> bytes:
    fields = {key: value for key, value in document.items() if value is not None}
    if "attrs" in fields:
        fields["attrs"] = {name: plain(value) for name, value in fields["attrs"].items()}
    try:
        return _ENCODER.encode(fields).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadArgument(f"cannot write an argument as JSON: {error}") from error


def _scalar(value: Any) -> Any:
    """Return a NumPy scalar, such as an order or a seed, as a Python number."""
    try:
        return value.item()
    except AttributeError:
        raise TypeError(f"expected numbers, strings, lists or arrays, got {type(value).__name__}") from None


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_scalar)
