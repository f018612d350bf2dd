"""Strict JSON, both to and from bytes; errors have the location and the cure."""

import json
import re
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import numpy as np
import orjson

from app.errors import Malformed

Body: TypeAlias = bytes | bytearray | memoryview

MAX_BRACKETS = 100_000
_SLICE = 1 << 18
_SQUARE, _CURLY = b"[{"
_NAMED_BELOW = 1 << 20
_MANY = 1 << 62
_SHALLOW = 3

_NONFINITE = re.compile(r"[-+]?(nan|inf(inity)?)\b", re.IGNORECASE)


def dumps(document: Any) -> bytes:
    """Return the document as strict JSON with a final line feed; NumPy arrays and scalars inside it must be finite.

    orjson writes NaN and infinity as null; ``layouts`` replaces them in tensors by strings.
    Raises ``TypeError`` for a value that JSON cannot represent.
    """
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)


def parse(body: Body) -> Any:
    """Return the value of a JSON document.

    Raises ``Malformed``, with the location and a cure, for a body that is not strict JSON in UTF-8, has more than
    ``MAX_BRACKETS`` brackets, is nested deeper than 1024, has a number that overflows float64, or repeats a key in one
    object.
    """
    raw = bytes(body) if isinstance(body, memoryview) else body
    if len(raw) > MAX_BRACKETS:
        refuse_brackets(raw)
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise _malformed(raw, error) from None
    # Most requests have colons only after keys, in objects at most three deep: then no key was dropped.
    keys, level = 0, [document]
    for _ in range(_SHALLOW):
        inner: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                fields = cast("dict[str, Any]", value)
                keys += len(fields)
                inner += fields.values()
        level = inner
    if raw.count(b":") > keys:
        _refuse_duplicates(raw, document)
    return document


def refuse_brackets(raw: bytes | bytearray) -> None:
    """Raise ``Malformed`` for too many brackets, each of which costs the parser more than a hundred digits."""
    count, numbers = 0, np.frombuffer(raw, np.uint8)
    for start in range(0, len(raw), _SLICE):
        # NumPy counts several times as fast as ``bytes.count``: digits are all around.
        part = numbers[start : start + _SLICE]
        count += np.count_nonzero(part == _SQUARE) + np.count_nonzero(part == _CURLY)
        if count > MAX_BRACKETS:
            raise Malformed(
                f"the body has more than {MAX_BRACKETS} brackets: send a large tensor as a flat list with its shape, "
                '{"dtype", "shape", "data"}, or as base64, {"dtype", "shape", "base64"}'
            )


def _malformed(raw: bytes | bytearray, error: orjson.JSONDecodeError) -> Malformed:
    if not raw.strip():
        return Malformed("the body is empty: send a JSON document")
    try:
        raw.decode()
    except UnicodeDecodeError as fault:
        line, start = raw.count(b"\n", 0, fault.start) + 1, raw.rfind(b"\n", 0, fault.start) + 1
        column = len(raw[start : fault.start].decode()) + 1
        return Malformed(f"line {line} column {column}: the body is not UTF-8: encode it as UTF-8")
    return Malformed(f"line {error.lineno} column {error.colno}: {_cure(error)}")


def _cure(error: orjson.JSONDecodeError) -> str:
    signed = error.pos > 0 and error.doc[error.pos - 1] in "-+"
    word = _NONFINITE.match(error.doc, error.pos - signed)
    if word:
        return f'JSON has no {word[0]}: in a tensor, write the string "NaN", "Infinity" or "-Infinity"'
    if "infinity" in error.msg:
        return 'the number overflows float64: write the string "Infinity" or "-Infinity" to send infinity'
    if "end of data" in error.msg:
        return "the JSON document is truncated: send all of it"
    return f"not JSON: {error.msg}"


def _refuse_duplicates(raw: bytes | bytearray, document: Any) -> None:
    r"""Raise ``Malformed`` for a document with a duplicate key, whose first value the parser drops silently.

    Each colon in the body belongs to a key or a string, so if the body has more colons than the document, a value was
    dropped. (Not detected: a key next to an escaped colon, ``\u003a``, or in a document with a list that mixes objects
    or lists with other values.)
    """
    colons = raw.count(b":")
    if colons > _colons(document, _objects) and colons > _colons(document, _containers):
        name = _duplicate(raw) if len(raw) < _NAMED_BELOW else None
        what = "duplicate key" if name is None else f'duplicate key "{name[:64]}"'
        raise Malformed(f"{what} in one object: send it once")


def _colons(document: Any, look: Callable[[list[Any]], tuple[int, list[Any]]]) -> int:
    """Return the number of the document's keys plus that of the colons in its strings.

    ``look`` returns the number of colons in the strings of a list, and the items to descend into.
    """
    count, todo = 0, [document]
    while todo:
        value = todo.pop()
        if isinstance(value, str):
            count += value.count(":")
        elif isinstance(value, dict):
            fields = cast("dict[str, Any]", value)
            count += len(fields) + "".join(fields).count(":")
            todo.extend(fields.values())
        elif isinstance(value, list):
            colons, inner = look(cast("list[Any]", value))
            count += colons
            todo.extend(inner)
    return count


def _objects(items: list[Any]) -> tuple[int, list[Any]]:
    """Look at the first item only: a list that does not begin with an object is taken for a tensor, without colons."""
    first: Any = items
    while isinstance(first, list) and first:
        first = cast("list[Any]", first)[0]
    return 0, items if isinstance(first, dict) else []


def _containers(items: list[Any]) -> tuple[int, list[Any]]:
    """Look at every item; for a list that mixes containers with other values, give up: no valid request has one."""
    kinds = set(map(type, items))
    if kinds.isdisjoint((list, dict, str)):
        return 0, []
    if kinds.isdisjoint((list, dict)):
        return "".join(item for item in items if type(item) is str).count(":"), []
    return (0, items) if len(kinds) == 1 else (_MANY, [])


def _duplicate(raw: bytes | bytearray) -> str | None:
    """Return the duplicate key, or ``None`` if the document is too deep for the slower parser."""
    duplicates: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        seen = set[str]()
        for name, _ in () if duplicates else pairs:
            if name in seen:
                duplicates.append(name)
            seen.add(name)

    try:
        json.loads(raw, object_pairs_hook=look)
    except RecursionError:
        return None
    return duplicates[0] if duplicates else None
