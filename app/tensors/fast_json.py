"""Parsing of JSON bodies that keeps track of their tensors, and reads large ones in bulk.

The body is split into its skeleton and its runs of numbers. The skeleton is parsed by ``strict_json``, with a mark in
place of each run, and each run by itself: a short one becomes a ``NumberList``, a long one an array, without a Python
object per number. The same holds for the base64 texts of tensors. All of them know where they are in the body
(``Source``). A body that does not fit this scheme is parsed by ``strict_json`` alone, which reports all errors.

The fast path splits bodies by the same function, and reads the runs of those with a known skeleton (``read_lists``).
"""

import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, TypeAlias, cast

import numpy as np
import orjson
import pybase64
from numpy.typing import NDArray

from app.errors import Malformed
from app.tensors import strict_json
from app.tensors.casting import NUMBERS, Document, NumberList, Numbers, Source
from app.tensors.json import FIELDS, Decoded, Shape
from app.tensors.runs import AFTER, Raw, Run, end_of_run, read_run
from app.tensors.strict_json import Body

Kind: TypeAlias = type[Numbers | list[Any] | Decoded]
Place: TypeAlias = tuple[dict[str, Any], str, Kind]
"""A location of a long value: an object, one of its keys, and the type of the value: ``list`` for a list of vectors."""
Places: TypeAlias = Callable[[dict[str, Any]], Iterable[Place]]
"""A function that returns the places of a request's tensors; keys may be missing."""
FlatNumbers: TypeAlias = list[float] | NDArray[np.float64]

# Stands for a run of numbers. JSON has no such character, so no body is equal to a skeleton.
HOLE = b"[\0]"
# A flat list of digits up to this length may be a shape, or a tensor whose numbers are written as integers.
_SHORT_LIST = 64
_DIGITS = b"0123456789, "
_EMPTY = b"[]" + AFTER
# Brackets and what numbers are made of, from a bracket on. The possessive quantifier never goes back: linear time.
_RUN = re.compile(rb"[-+0-9.eE,\[\] \t\r\n]*+")
# The most runs of a body that is split: each takes a microsecond, and a request has one or two for each tensor.
MAX_RUNS = 64

# Bodies up to this length are split whole. In longer ones, only values from ``LONG`` on are taken out.
SHORT_BODY = 1 << 17
LONG = 1 << 15
# From this length on, runs become arrays; below, a Python object per number costs less.
LONG_RUN = 1 << 12
# A body of tensors has a few dozen lists and strings; one with more is left to ``strict_json``.
MAX_VALUES = 1 << 12
# A short run with so many lists may be nested deeper, together with what is around it, than ``strict_json`` allows.
MAX_LISTS = 1000

# A client cannot forge a mark: it begins with a random token of this process.
_MARK = secrets.token_hex(16)


class ShortList(NumberList):
    """A short list of digits, which is not a tensor wherever it is in no place of one."""


Extracted: TypeAlias = dict[str, Run | NumberList | Decoded]
"""The values that are parsed by themselves, by their marks."""


def split(body: bytes | bytearray) -> tuple[bytes, list[bytes | bytearray]] | None:
    """Return the skeleton of a JSON body, with a ``HOLE`` for each run, and the text of each run.

    Takes linear time. A nested list is one run. A list of strings stays in the skeleton, and so does an empty one.
    Returns ``None`` for a body with more than ``MAX_RUNS`` lists.
    """
    skeleton, texts, end, count = list[bytes | bytearray](), list[bytes | bytearray](), 0, 0
    start, following = body.find(b"["), 0
    while start >= 0:
        if (count := count + 1) > MAX_RUNS:
            return None
        following = body.find(b"[", start + 1)
        stop = body.find(b"]", start, following if following >= 0 else len(body)) + 1
        if not stop and (run := _RUN.match(body, start)):
            stop = run.end()
            following = body.find(b"[", stop)
        text = body[start:stop].rstrip(AFTER)
        if b'"' not in text and text.strip(_EMPTY):
            skeleton += (body[end:start], HOLE)
            texts.append(text)
            end = start + len(text)
        start = following
    skeleton.append(body[end:])
    return b"".join(skeleton), texts


def may_be_shape(text: bytes | bytearray) -> bool:
    """Return whether the text of a run is a short flat list of digits: it may be a shape, and not a tensor."""
    return len(text) <= _SHORT_LIST and not text[1:-1].translate(None, _DIGITS)


def read_lists(texts: Sequence[bytes | bytearray]) -> tuple[FlatNumbers, tuple[Shape, ...]] | None:
    """Return the numbers of all runs, and the shape of each; ``None`` if one of them is not a tensor of numbers."""
    numbers, shapes = list[float](), list[Shape]()
    try:
        if sum(map(len, texts)) >= LONG_RUN:
            tensors = [read_run(text, 0, len(text)).tensor() for text in texts]
            values = [tensor.values for tensor in tensors]
            return values[0] if len(values) == 1 else np.concatenate(values), tuple(tensor.shape for tensor in tensors)
        for text in texts:
            level: list[Any] = orjson.loads(text)
            shape: Shape = (len(level),)
            while level and isinstance(level[0], list):
                if set(map(type, level)) != {list} or len(lengths := set(map(len, level))) != 1:
                    return None
                shape += (lengths.pop(),)
                level = list(chain.from_iterable(level))
            if not NUMBERS.issuperset(map(type, level)):
                return None
            numbers += level
            shapes.append(shape)
    except (ValueError, TypeError, RuntimeError):  # from the parsers, and for lists that are no tensors
        return None
    return numbers, tuple(shapes)


def places(request: dict[str, Any]) -> list[Place]:
    """Return the places of tensors in a request to the native API."""
    found = list[Place]()
    for field in FIELDS:
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
    extracted = Extracted()
    try:
        if len(body) > strict_json.MAX_BRACKETS:
            strict_json.refuse_brackets(body)
        rest = _without_runs(body, extracted) if len(body) <= SHORT_BODY else _without_long_values(body, extracted)
        return _restored(body, strict_json.parse(rest), places, extracted)
    except (Malformed, ValueError, TypeError, RuntimeError):  # from the parsers and this module
        return strict_json.parse(body)


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
        mark, run = f"{_MARK}.{len(extracted)}", None
        if len(text) >= LONG_RUN:
            with suppress(ValueError):
                run = read_run(raw, start, start + len(text))
        if run is None:
            if text.count(b"[") > MAX_LISTS:
                raise ValueError("expected fewer lists in a short run")
            run = (ShortList if may_be_shape(text) else NumberList)(orjson.loads(text))
            run.start = start
        extracted[mark] = run
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
    sources = list[Source]()
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
                place[key] = decoded = _decoded(raw, text, is_located=len(sources) < MAX_RUNS)
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
    rows, first = list[NumberList](), 0
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
