"""Fast parsing of large JSON bodies: long values are extracted and read in bulk, several times as fast.

Long values are flat lists of numbers, which become arrays without a Python object per number, and base64 strings. The
rest of the body, short values and bools, is parsed by ``strict_json``, with a mark in place of each long value: a list
is replaced by a list of the mark. A body that does not fit this scheme is parsed by ``strict_json`` alone, which
reports all errors.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, cast

import numpy as np
import pybase64
import simdjson
from numpy.typing import NDArray

from app.errors import Malformed
from app.tensors import strict_json
from app.tensors.casting import Numbers
from app.tensors.decoding import FIELDS
from app.tensors.json import Decoded
from app.tensors.strict_json import Body

Extracted: TypeAlias = dict[str, Numbers | Decoded]
Place: TypeAlias = tuple[dict[str, Any], str, type[Numbers | Decoded]]
"""A location of a long value: an object, one of its keys, and the type of the extracted value."""
Places: TypeAlias = Callable[[dict[str, Any]], Iterable[Place]]
"""A function that returns the places of a request's tensors; keys may be missing."""

LONG = 1 << 15
# The characters at the start of a list that are examined for bools; after more blanks than that, numbers are assumed.
BEGINNING = 16
# Numbers are read in parts of this many bytes.
PART = 1 << 16
# A body of tensors has a few dozen; a body with more is left to ``strict_json``.
MAX_QUOTES = 1 << 12

# A client cannot forge a mark: it begins with a random token of this process.
_MARK = secrets.token_hex(16)


def places(request: dict[str, Any]) -> Iterator[Place]:
    """Yield the places of tensors in a request to the native API."""
    for field in FIELDS:
        named = request.get(field)
        for name, value in cast("dict[str, Any]", named).items() if isinstance(named, dict) else ():
            tensor = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
            yield cast("dict[str, Any]", named), name, Numbers
            yield tensor, "data", Numbers
            yield tensor, "base64", Decoded


def parse(body: Body, places: Places = places) -> Any:
    """Parse as ``strict_json.parse`` does, but return ``Numbers`` and ``Decoded`` for long values in the ``places``.

    Raises as ``strict_json.parse`` does.
    """
    if len(body) >= LONG and not isinstance(body, memoryview):
        try:
            return _parse_long(body, places)
        except (Malformed, ValueError, TypeError, RuntimeError):  # from the parsers and this module
            pass
    return strict_json.parse(body)


def _parse_long(raw: bytes | bytearray, places: Places) -> Any:
    """Return the document; raise ``ValueError`` or another error if the body does not fit the scheme."""
    extracted = Extracted()
    rest = b"".join(_extract(raw, extracted))
    if b"\\" in rest:
        raise ValueError("expected strings that end at a quote")
    document: Any = strict_json.parse(rest)
    if isinstance(document, dict):
        for place in places(cast("dict[str, Any]", document)):
            _restore(*place, extracted)
    if extracted:
        raise ValueError("expected long values only in the places of tensors")
    return cast(Any, document)


def _extract(raw: bytes | bytearray, extracted: Extracted) -> Iterator[bytes | bytearray]:
    """Yield the body with marks for long values, which go to ``extracted``.

    Quotes delimit the strings, provided that none is escaped.
    """
    parser, view, start, inside = simdjson.Parser(), memoryview(raw), 0, False
    for end in _quotes(raw):
        if end - start < LONG:
            yield raw[start:end]
        elif inside:
            yield _store(extracted, Decoded(pybase64.b64decode(view[start:end], validate=True), end - start))
        elif _has_bools(raw, raw.find(b"[", start, end) + 1):
            yield raw[start:end]
        else:
            first = raw.find(b"[", start, end)
            last = raw.find(b"]", first, end) + 1
            if first < 0 or last < first or raw.find(b"[", first + 1, last) >= 0:
                raise ValueError("expected one flat list")
            yield raw[start : first + 1]
            yield b'"%b"' % _store(extracted, _numbers(parser, raw, first, last))
            yield raw[last - 1 : end]
        if end < len(raw):
            yield b'"'
        start, inside = end + 1, not inside


def _has_bools(raw: bytes | bytearray, start: int) -> bool:
    """Report whether the list that begins before ``start`` has bools, which ``strict_json`` reads fast enough."""
    return raw[start : start + BEGINNING].lstrip(b" \t\r\n[")[:1] in (b"t", b"f")


def _quotes(raw: bytes | bytearray) -> Iterator[int]:
    """Yield the positions of the quotes, then the length of the body."""
    at, count = raw.find(b'"'), 0
    while at >= 0:
        yield at
        at, count = raw.find(b'"', at + 1), count + 1
        if count > MAX_QUOTES:
            raise ValueError("expected fewer strings")
    yield len(raw)


def _numbers(parser: simdjson.Parser, raw: bytes | bytearray, first: int, last: int) -> Numbers:
    """Return the flat list of numbers in ``raw[first:last]``; raise an error for anything else.

    Reads parts that fit in the cache; other threads can take the interpreter between two parts.
    """
    parts, start, end = list[NDArray[np.float64]](), first + 1, last - 1
    while True:
        comma = raw.find(b",", start + PART, end)
        stop = end if comma < 0 else comma
        part = parser.parse(b"[%b]" % raw[start:stop])
        if not isinstance(part, simdjson.Array) or not len(part):
            raise ValueError("expected a number between two commas")
        parts.append(np.frombuffer(part.as_buffer(of_type="d"), np.float64))
        del part  # the parser cannot be reused while its last result exists
        if stop == end:
            return Numbers(np.concatenate(parts), memoryview(raw)[first:last])
        start = stop + 1


def _store(extracted: Extracted, value: Numbers | Decoded) -> bytes:
    """Store a long value and return its mark."""
    mark = f"{_MARK}:{len(extracted)}"
    extracted[mark] = value
    return mark.encode()


def _restore(place: dict[str, Any], key: str, kind: type, extracted: Extracted) -> None:
    """Replace the mark at this place, if any, by its value, if that has the right type."""
    match place.get(key):
        case [str(mark)] if kind is Numbers and isinstance(extracted.get(mark), kind):
            place[key] = extracted.pop(mark)
        case str(mark) if kind is Decoded and isinstance(extracted.get(mark), kind):
            place[key] = extracted.pop(mark)
        case _:
            pass
