"""Parsing of JSON bodies that keeps track of their tensors, and reads large ones in bulk.

The body is split into its skeleton and its runs of numbers. The skeleton is parsed by ``strict_json``, with a mark in
place of each run, and each run by itself: a short one becomes a ``NumberList``, a long one an array, without a Python
object per number. The same holds for the base64 texts of tensors. All of them know where they are in the body
(``Source``). A body that does not fit this scheme is parsed by ``strict_json`` alone, which reports all errors.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, cast

import pybase64

from app.errors import Malformed
from app.tensors import skeletons, strict_json
from app.tensors.casting import Document, NumberList, Numbers, Source
from app.tensors.json import FIELDS, Decoded
from app.tensors.runs import Raw, Run, end_of_run, read_run
from app.tensors.skeletons import HOLE, may_be_shape, split
from app.tensors.strict_json import Body

Kind: TypeAlias = type[Numbers | list[Any] | Decoded]
Place: TypeAlias = tuple[dict[str, Any], str, Kind]
"""A location of a long value: an object, one of its keys, and the type of the value: ``list`` for a list of vectors."""
Places: TypeAlias = Callable[[dict[str, Any]], Iterable[Place]]
"""A function that returns the places of a request's tensors; keys may be missing."""

# Bodies up to this length are split whole. In longer ones, only values from ``LONG`` on are taken out.
SHORT_BODY = 1 << 17
LONG = 1 << 15
# A body of tensors has a few dozen lists and strings; one with more is left to ``strict_json``.
MAX_VALUES = 1 << 12

# A client cannot forge a mark: it begins with a random token of this process.
_MARK = secrets.token_hex(16)


class ShortList(NumberList):
    """A short list of digits, which is not a tensor wherever it is in no place of one."""


Extracted: TypeAlias = dict[str, Run | NumberList | Decoded]
"""The values that are parsed by themselves, by their marks."""


def places(request: dict[str, Any], fields: Sequence[str] = FIELDS) -> list[Place]:
    """Return the places of tensors in these fields of a request to the native API."""
    found: list[Place] = []
    for field in fields:
        named = request.get(field)
        for name, value in cast("dict[str, Any]", named).items() if isinstance(named, dict) else ():
            found.append((cast("dict[str, Any]", named), name, Numbers))
            if isinstance(value, dict):
                tensor = cast("dict[str, Any]", value)
                found += ((tensor, "data", Numbers), (tensor, "base64", Decoded))
    return found


def parse(body: Body, places: Places = places) -> Any:
    """Parse as ``strict_json.parse`` does, but return values with sources in the ``places``, in a ``Document``.

    Raises as ``strict_json.parse`` does.
    """
    if isinstance(body, memoryview):
        return strict_json.parse(body)
    extracted: Extracted = {}
    try:
        if len(body) > strict_json.MAX_BRACKETS:
            strict_json.refuse_brackets(body)
        rest = _without_runs(body, extracted) if len(body) <= SHORT_BODY else _without_long_values(body, extracted)
        return _restored(body, strict_json.parse(rest), places, extracted)
    except (Malformed, ValueError, TypeError, RuntimeError):  # from the parsers and this module
        return strict_json.parse(body)


def parse_bare(body: Body, places: Places = places) -> Any:
    """Parse as ``parse`` does, but a short body without sources, which takes a fraction of the time."""
    return strict_json.parse(body) if len(body) < skeletons.LONG_RUN else parse(body, places)


Parse: TypeAlias = Callable[[Body, Places], Any]
"""``parse``, or ``parse_bare`` if nothing needs sources."""


def _without_runs(raw: Raw, extracted: Extracted) -> bytes:
    """Return a short body with marks for its runs, which go to ``extracted``; raise ``ValueError`` if it does not fit.

    A short run becomes a list, whatever it contains, such as bools.
    """
    if (parts := split(raw)) is None:
        raise ValueError("expected fewer lists")
    skeleton, texts = parts
    first, *rest = skeleton.split(HOLE)
    pieces, start = [first], len(first)
    for text, following in zip(texts, rest, strict=True):
        mark = f"{_MARK}.{len(extracted)}"
        extracted[mark] = skeletons.read(raw, text, start, ShortList if may_be_shape(text) else NumberList)
        pieces += (b'["%b"]' % mark.encode(), following)
        start += len(text) + len(following)
    return b"".join(pieces)


def _without_long_values(raw: Raw, extracted: Extracted) -> bytes:
    """Return a long body with marks for its long values, as ``_without_runs`` does."""
    rest = b"".join(_extract(raw, extracted))
    if b"\\" in rest:
        raise ValueError("expected strings that end at a quote")
    return rest


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


def _store(extracted: Extracted, value: Run | Decoded) -> bytes:
    """Store a value and return its mark."""
    mark = f"{_MARK}.{len(extracted)}"
    extracted[mark] = value
    return mark.encode()


def _restored(raw: Raw, parsed: Any, places: Places, extracted: Extracted) -> Document:
    """Return the document with values in place of their marks, which must be in places of the right type.

    Raises ``ValueError`` for any other document, and for lists of other lengths than a place has.
    """
    if not isinstance(parsed, dict):
        raise ValueError("expected an object")
    sources: list[Source] = []
    for place, key, kind in places(cast("dict[str, Any]", parsed)):
        match place.get(key):
            case [str(mark)] if isinstance(run := extracted.get(mark), Run | NumberList) and kind is not Decoded:
                del extracted[mark]
                if kind is Numbers:
                    place[key] = tensor = run.tensor() if isinstance(run, Run) else run
                    sources.append(tensor)
                else:
                    place[key] = rows = run.rows() if isinstance(run, Run) else _rows(run)
                    sources += rows
            case str(mark) if isinstance(decoded := extracted.get(mark), Decoded) and kind is Decoded:
                place[key] = decoded
                del extracted[mark]
                sources.append(decoded)
            case str(text) if kind is Decoded and len(raw) <= SHORT_BODY:
                place[key] = decoded = _decoded(raw, text, is_located=len(sources) < skeletons.MAX_RUNS)
                sources.append(decoded)
            case _:
                pass
    if extracted:
        if set(map(type, extracted.values())) != {ShortList}:
            raise ValueError("expected runs only in the places of tensors")
        _put_back(parsed, cast("dict[str, ShortList]", extracted))
    document = Document(cast("dict[str, Any]", parsed))
    document.sources = tuple(sources)
    return document


def _put_back(value: Any, lists: dict[str, ShortList]) -> None:
    """Put lists in place of their marks, anywhere in a document."""
    waiting: list[Any] = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, dict):
            waiting += cast("dict[str, Any]", inner).values()
        elif isinstance(inner, list):
            items = cast("list[Any]", inner)
            if len(items) == 1 and isinstance(items[0], str) and items[0] in lists:
                items[:] = lists[items[0]]
            else:
                waiting += items


def _rows(run: NumberList) -> list[NumberList]:
    """Return the flat lists in a run; raise ``TypeError`` if it has anything else."""
    rows: list[NumberList] = []
    first = 0
    for items in run:
        row = NumberList(items)
        row.start, row.first = run.start, first
        rows.append(row)
        first += len(row)
    return rows


def _decoded(raw: Raw, text: str, *, is_located: bool) -> Decoded:
    """Decode a base64 string of a body; raise ``ValueError`` if it is none.

    If ``is_located``, search the body for it, which takes linear time.
    """
    decoded = Decoded(pybase64.b64decode(text, validate=True), len(text))
    quoted = b'"%b"' % text.encode()
    # With two equal texts, or with an escape that may hide this one, it is unknown where it is.
    if is_located and raw.count(quoted) == 1 and b"\\" not in raw:
        decoded.start = raw.find(quoted) + 1
    return decoded
