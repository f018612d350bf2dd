"""Large JSON bodies: what is long in them is taken out and read at one go, several times as fast.

That is a flat list of numbers, which here becomes an array without a Python object for each, and a string of base64.
What is left is short, or bools, and is parsed as every body is, with a mark in each place that something was taken
from: a list of the mark alone for a list. Whatever is not plain and right goes back to the parser for all bodies, which
alone decides what is wrong, and where.
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
from app.tensors.json import Decoded
from app.tensors.strict_json import Body

Extracted: TypeAlias = dict[str, Numbers | Decoded]
Place: TypeAlias = tuple[dict[str, Any], str, type[Numbers | Decoded]]
"""Where something long may stand: an object, one of its keys, and what is taken from there."""
Places: TypeAlias = Callable[[dict[str, Any]], Iterable[Place]]
"""Gives the places of the tensors in a request, some of which may not be there."""

FIELDS = ("inputs", "cotangents", "tangents", "vectors")
LONG = 1 << 15
# So far into a list it is looked whether there are bools in it; where it begins with more blanks, numbers are expected.
BEGINNING = 16
# Numbers are read in parts of so many bytes.
PART = 1 << 16
# A body of tensors has a few dozens; what has more is not looked through.
MAX_QUOTES = 1 << 12

# Nobody else can write a mark: it begins with what this process drew by lot.
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
    """Return what ``strict_json.parse`` does, with ``Numbers`` and ``Decoded`` for what is long in the ``places``.

    Raises as it does.
    """
    if len(body) >= LONG and not isinstance(body, memoryview):
        try:
            return _parse_apart(body, places)
        except (Malformed, ValueError, TypeError, RuntimeError):  # as the parsers raise them, and this module
            pass
    return strict_json.parse(body)


def _parse_apart(raw: bytes | bytearray, places: Places) -> Any:
    """Return the document; raises ``ValueError`` or another error where it is not plain."""
    taken = Extracted()
    rest = b"".join(_without_long(raw, taken))
    if b"\\" in rest:
        raise ValueError("expected strings that end at a quote")
    found: Any = strict_json.parse(rest)
    if isinstance(found, dict):
        for place in places(cast("dict[str, Any]", found)):
            _put(*place, taken)
    if taken:
        raise ValueError("expected what is long in the places of tensors")
    return cast(Any, found)


def _without_long(raw: bytes | bytearray, taken: Extracted) -> Iterator[bytes | bytearray]:
    """Yield the body with marks for what is long in it; quotes tell what is in a string, where no one is escaped."""
    parser, view, start, inside = simdjson.Parser(), memoryview(raw), 0, False
    for end in _quotes(raw):
        if end - start < LONG:
            yield raw[start:end]
        elif inside:
            yield _marked(taken, Decoded(pybase64.b64decode(view[start:end], validate=True), end - start))
        elif _has_bools(raw, raw.find(b"[", start, end) + 1):
            yield raw[start:end]
        else:
            first = raw.find(b"[", start, end)
            last = raw.find(b"]", first, end) + 1
            if first < 0 or last < first or raw.find(b"[", first + 1, last) >= 0:
                raise ValueError("expected one flat list")
            yield raw[start : first + 1]
            yield b'"%b"' % _marked(taken, _numbers(parser, raw, first, last))
            yield raw[last - 1 : end]
        if end < len(raw):
            yield b'"'
        start, inside = end + 1, not inside


def _has_bools(raw: bytes | bytearray, start: int) -> bool:
    """Tell whether the list that begins before ``start`` is one of bools: they are no numbers, and read soon enough."""
    return raw[start : start + BEGINNING].lstrip(b" \t\r\n[")[:1] in (b"t", b"f")


def _quotes(raw: bytes | bytearray) -> Iterator[int]:
    """Yield the places of the quotes, and the end."""
    at, count = raw.find(b'"'), 0
    while at >= 0:
        yield at
        at, count = raw.find(b'"', at + 1), count + 1
        if count > MAX_QUOTES:
            raise ValueError("expected fewer strings")
    yield len(raw)


def _numbers(parser: simdjson.Parser, raw: bytes | bytearray, first: int, last: int) -> Numbers:
    """Return the flat list of numbers in ``raw[first:last]``; raises an error for anything else.

    It is read in parts that stay in the cache, between which others may have the interpreter.
    """
    parts, start, end = list[NDArray[np.float64]](), first + 1, last - 1
    while True:
        comma = raw.find(b",", start + PART, end)
        stop = end if comma < 0 else comma
        found = parser.parse(b"[%b]" % raw[start:stop])
        if not isinstance(found, simdjson.Array) or not len(found):
            raise ValueError("expected a number between two commas")
        parts.append(np.frombuffer(found.as_buffer(of_type="d"), np.float64))
        del found  # or the parser would not take the next
        if stop == end:
            return Numbers(np.concatenate(parts), memoryview(raw)[first:last])
        start = stop + 1


def _marked(taken: Extracted, value: Numbers | Decoded) -> bytes:
    mark = f"{_MARK}:{len(taken)}"
    taken[mark] = value
    return mark.encode()


def _put(place: dict[str, Any], key: str, kind: type, taken: Extracted) -> None:
    """Put what was taken where its mark is, if that is this place, and it may be here."""
    match place.get(key):
        case [str(mark)] if kind is Numbers and isinstance(taken.get(mark), kind):
            place[key] = taken.pop(mark)
        case str(mark) if kind is Decoded and isinstance(taken.get(mark), kind):
            place[key] = taken.pop(mark)
        case _:
            pass
