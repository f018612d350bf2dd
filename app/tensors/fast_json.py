"""Parsing of JSON bodies that keeps track of their tensors, and reads large ones in bulk.

The body is split into its skeleton and its runs of numbers. The skeleton is parsed by ``strict_json``, with a mark in
place of each run, and each run by itself: a short one becomes a ``NumberList``, a long one an array, without a Python
object per number. The same holds for the base64 texts of tensors. All of them know where they are in the body
(``Source``). A body that does not fit this scheme is parsed by ``strict_json`` alone, which reports all errors.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import pybase64

from app.errors import Malformed
from app.tensors import strict_json
from app.tensors.casting import NumberList, Numbers, Source
from app.tensors.decoding import FIELDS
from app.tensors.json import Decoded
from app.tensors.runs import Raw, Run, end_of_run, read_run
from app.tensors.skeletons import HOLE, MAX_RUNS, split
from app.tensors.strict_json import Body

Kind: TypeAlias = type[Numbers | list[Any] | Decoded]
Place: TypeAlias = tuple[dict[str, Any], str, Kind]
"""A location of a long value: an object, one of its keys, and the type of the value: ``list`` for a list of vectors."""
Places: TypeAlias = Callable[[dict[str, Any]], Iterable[Place]]
"""A function that returns the places of a request's tensors; keys may be missing."""

# Bodies up to this length are split whole. In longer ones, only values from ``LONG`` on are taken out.
SHORT_BODY = 1 << 17
LONG = 1 << 15
# From this length on, a run in a short body becomes an array.
LONG_RUN = 1 << 12
# A body of tensors has a few dozen lists and strings; one with more is left to ``strict_json``.
MAX_VALUES = 1 << 12
# A short run with so many lists may be nested deeper, together with what is around it, than ``strict_json`` allows.
MAX_LISTS = 1000

# A client cannot forge a mark: it begins with a random token of this process.
_MARK = secrets.token_hex(16)


class Document(dict[str, Any]):
    """A JSON object, and the ``sources`` of its tensors, as far as they are known."""

    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, eq=False)
class _ShortRun:
    """The text of a short run, which begins at ``start``."""

    text: bytes | bytearray
    start: int

    def tensor(self) -> NumberList:
        """Return the run as a list."""
        return self._list(strict_json.parse(self.text), 0)

    def rows(self) -> list[Any]:
        """Return the items of the run, of which those that are flat lists have sources."""
        rows, first = list[Any](), 0
        for row in cast("list[Any]", strict_json.parse(self.text)):
            rows.append(self._list(cast("list[Any]", row), first) if isinstance(row, list) else row)
            first += len(rows[-1]) if isinstance(row, list) else 1  # pyright: ignore[reportUnknownArgumentType]
        return rows

    def _list(self, items: list[Any], first: int) -> NumberList:
        numbers = NumberList(items)
        numbers.start, numbers.first = self.start, first
        return numbers


Extracted: TypeAlias = dict[str, Run | _ShortRun | Decoded]


def places(request: dict[str, Any]) -> Iterator[Place]:
    """Yield the places of tensors in a request to the native API."""
    for field in FIELDS:
        named = request.get(field)
        for name, value in cast("dict[str, Any]", named).items() if isinstance(named, dict) else ():
            tensor = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
            yield cast("dict[str, Any]", named), name, Numbers
            yield tensor, "data", Numbers
            yield tensor, "base64", Decoded


def sources_of(fields: object) -> tuple[Source, ...]:
    """Return the sources of the tensors in a document that ``parse`` has returned."""
    return fields.sources if isinstance(fields, Document) else ()


def parse(body: Body, places: Places = places) -> Any:
    """Parse as ``strict_json.parse`` does, but return values with sources in the ``places``, in a ``Document``.

    Raises as ``strict_json.parse`` does.
    """
    if isinstance(body, memoryview):
        return strict_json.parse(body)
    take_out = _take_out_runs if len(body) <= SHORT_BODY else _take_out_long
    try:
        return _parse(body, take_out, places)
    except (Malformed, ValueError, TypeError, RuntimeError):  # from the parsers and this module
        return strict_json.parse(body)


def _parse(raw: Raw, take_out: Callable[[Raw, Extracted], Iterable[Raw]], places: Places) -> Any:
    """Return the document; raise ``ValueError`` or another error if the body does not fit the scheme."""
    strict_json.refuse_brackets(raw)
    extracted = Extracted()
    document: Any = strict_json.parse(b"".join(take_out(raw, extracted)))
    if not isinstance(document, dict):
        raise ValueError("expected an object")
    sources = list[Source]()
    for place in places(cast("dict[str, Any]", document)):
        sources += _restore(raw, *place, extracted, is_located=len(sources) < MAX_RUNS)
    if extracted:
        raise ValueError("expected runs only in the places of tensors")
    found = Document(cast("dict[str, Any]", document))
    found.sources = tuple(sources)
    return found


def _take_out_runs(raw: Raw, extracted: Extracted) -> Iterator[Raw]:
    """Yield the body with marks for its runs, which go to ``extracted``."""
    if (parts := split(raw)) is None:
        raise ValueError("expected fewer lists")
    skeleton, texts = parts
    first, *rest = skeleton.split(HOLE)
    yield first
    start = len(first)
    for text, following in zip(texts, rest, strict=True):
        yield b'["%b"]' % _store(extracted, _run_at(raw, text, start))
        yield following
        start += len(text) + len(following)


def _run_at(raw: Raw, text: Raw, start: int) -> Run | _ShortRun:
    """Return the run with this text at ``start``; one of other values than numbers, such as bools, as a short one."""
    if len(text) >= LONG_RUN:
        with suppress(ValueError):
            return read_run(raw, start, start + len(text))
    if text.count(b"[") > MAX_LISTS:
        raise ValueError("expected fewer lists in a short run")
    return _ShortRun(text, start)


def _take_out_long(raw: Raw, extracted: Extracted) -> Iterator[Raw]:
    """Yield the body with marks for its long values, which go to ``extracted``."""
    rest = b"".join(_extract(raw, extracted))
    if b"\\" in rest:
        raise ValueError("expected strings that end at a quote")
    yield rest


def _extract(raw: Raw, extracted: Extracted) -> Iterator[Raw]:
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
                decoded = Decoded(pybase64.b64decode(text, validate=True), end - start)
                decoded.start = start
                value = _store(extracted, decoded)
        else:
            yield raw[kept:]
            return
        if value:
            yield raw[kept:start]
            yield value
            kept = end
    raise ValueError(f"expected fewer than {MAX_VALUES} lists and strings")


def _store(extracted: Extracted, value: Run | _ShortRun | Decoded) -> bytes:
    """Store a value and return its mark."""
    mark = f"{_MARK}.{len(extracted)}"
    extracted[mark] = value
    return mark.encode()


def _restore(
    raw: Raw, place: dict[str, Any], key: str, kind: Kind, extracted: Extracted, *, is_located: bool
) -> list[Source]:
    """Replace the mark at this place, if any, by its value, if that has the right type; return the sources.

    If ``is_located``, search a short body for a base64 text, which takes linear time. Raises ``ValueError`` for lists
    of other lengths than a place of this kind has.
    """
    match place.get(key):
        case [str(mark)] if isinstance(run := extracted.get(mark), Run | _ShortRun) and kind is not Decoded:
            del extracted[mark]
            value = place[key] = run.tensor() if kind is Numbers else run.rows()
            return [value] if isinstance(value, Source) else [row for row in value if isinstance(row, Source)]
        case str(mark) if isinstance(decoded := extracted.get(mark), Decoded) and kind is Decoded:
            place[key] = decoded
            del extracted[mark]
            return [decoded]
        case str(text) if kind is Decoded and len(raw) <= SHORT_BODY:
            place[key] = decoded = Decoded(pybase64.b64decode(text, validate=True), len(text))
            quoted = b'"%b"' % text.encode()
            # With two equal texts, or with an escape that may hide this one, it is unknown where it is.
            if is_located and raw.count(quoted) == 1 and b"\\" not in raw:
                decoded.start = raw.find(quoted) + 1
            return [decoded]
        case _:
            return []
