"""Conversion of pydantic's errors to entries: location, message, expected and actual value."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from app.errors import MAX_ENTRIES, Entry, Loc, near
from app.tensors.casting import describe

_PLAINER = {"a valid dictionary": "an object", "a valid list": "a list"}


def entries(faults: Sequence[Mapping[str, Any]], known: Iterable[str], at: Loc = ()) -> list[Entry]:
    """Return an entry for each fault; ``known`` are the valid fields, ``at`` is the location of the fields."""
    names = list(known)
    return [_entry(fault, names, (*at, *fault["loc"])) for fault in faults[:MAX_ENTRIES]]


def _entry(fault: Mapping[str, Any], known: Sequence[str], loc: Loc) -> Entry:
    name = str(loc[-1]) if loc else "body"
    if fault["type"] == "extra_forbidden":
        return Entry(loc, "unknown field", expected=near(name, known), got=name)
    if fault["type"] == "missing":
        return Entry(loc, "missing field", expected=f"the field {name}", got="nothing")
    if fault["type"] == "too_long":
        return Entry(loc, "too many items", expected=f"at most {fault['ctx']['max_length']}", got="more")
    expected = str(fault["msg"]).removeprefix("Input should be ").removeprefix("Value error, ")
    expected = _PLAINER.get(expected, expected)
    return Entry(loc, f"expected {expected}", expected=expected, got=describe(fault["input"]))
