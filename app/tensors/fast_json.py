"""Fast parsing of large JSON bodies: long values are extracted and read in bulk, several times as fast.

Long values are lists of numbers, flat or nested, which become arrays without a Python object per number, and base64
strings. The rest of the body, short values and bools, is parsed by ``strict_json``, with a mark in place of each long
value: a list is replaced by a list of the mark. A body that does not fit this scheme is parsed by ``strict_json``
alone, which reports all errors.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, cast

import pybase64

from app.errors import Malformed
from app.tensors import strict_json
from app.tensors.casting import Numbers
from app.tensors.decoding import FIELDS
from app.tensors.json import Decoded
from app.tensors.runs import Run, end_of_run, read_run
from app.tensors.strict_json import Body

Extracted: TypeAlias = dict[str, Run | Decoded]
Kind: TypeAlias = type[Numbers | list[Any] | Decoded]
Place: TypeAlias = tuple[dict[str, Any], str, Kind]
"""A location of a long value: an object, one of its keys, and the type of the value: ``list`` for a list of vectors."""
Places: TypeAlias = Callable[[dict[str, Any]], Iterable[Place]]
"""A function that returns the places of a request's tensors; keys may be missing."""

LONG = 1 << 15
# A body of tensors has a few dozen lists and strings; one with more is left to ``strict_json``.
MAX_VALUES = 1 << 12

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
    strict_json.refuse_brackets(raw)
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
    at, kept, quote = 0, 0, -1
    for _ in range(MAX_VALUES):
        if quote < at:
            quote = raw.find(b'"', at) % (len(raw) + 1)  # without one, the length
        start, value = raw.find(b"[", at, quote), b""
        if start >= 0:
            end = at = end_of_run(raw, start)
            if end - start >= LONG:
                value = b'["%b"]' % _store(extracted, read_run(raw, start, end))
        elif quote < len(raw):
            start, end = quote + 1, raw.index(b'"', quote + 1)
            at = end + 1
            if end - start >= LONG:
                text = memoryview(raw)[start:end]
                value = _store(extracted, Decoded(pybase64.b64decode(text, validate=True), end - start))
        else:
            yield raw[kept:]
            return
        if value:
            yield raw[kept:start]
            yield value
            kept = end
    raise ValueError(f"expected fewer than {MAX_VALUES} lists and strings")


def _store(extracted: Extracted, value: Run | Decoded) -> bytes:
    """Store a long value and return its mark."""
    mark = f"{_MARK}:{len(extracted)}"
    extracted[mark] = value
    return mark.encode()


def _restore(place: dict[str, Any], key: str, kind: Kind, extracted: Extracted) -> None:
    """Replace the mark at this place, if any, by its value, if that has the right type.

    Raises ``ValueError`` for lists of other lengths than a place of this kind has.
    """
    match place.get(key):
        case [str(mark)] if isinstance(run := extracted.get(mark), Run) and kind is not Decoded:
            place[key] = run.tensor() if kind is Numbers else run.rows()
            del extracted[mark]
        case str(mark) if isinstance(extracted.get(mark), Decoded) and kind is Decoded:
            place[key] = extracted.pop(mark)
        case _:
            pass
