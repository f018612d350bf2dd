"""Conversion of pydantic's errors to entries: location, message, expected and actual value.

No text of pydantic reaches a client, except comparisons with a number, such as "greater than or equal to 1".
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic_core import PydanticCustomError

from app.errors import MAX_ENTRIES, Entry, Loc, near
from app.tensors.casting import describe

_TYPES: Mapping[str, str] = {
    "string_type": "a string",
    "int_type": "a valid integer",
    "int_parsing": "a valid integer",
    "int_from_float": "a valid integer",
    "int_parsing_size": "a valid integer of fewer digits",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "a boolean, true or false",
    "bool_parsing": "a boolean, true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
    "mapping_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "none_required": "null",
    "path_type": "a path",
    "string_unicode": "text in UTF-8",
}
# Where the type alone does not say what is expected: with the bounds that pydantic names.
_BOUNDS: Mapping[str, str] = {
    "too_short": "at least {min_length}",
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
    "string_pattern_mismatch": "a string of the form {pattern}",
    "literal_error": "{expected}",
    "enum": "{expected}",
}
_CUSTOM = "expected"


def expected(what: str) -> PydanticCustomError:
    """Return the error that a validator of a model raises for a value that is not ``what``."""
    return PydanticCustomError(_CUSTOM, "{what}", {"what": what})


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
    if fault["type"] == "too_short":
        got = str(fault["ctx"]["actual_length"])
        return Entry(loc, "too few items", expected=_expected(fault), got=got)
    text = _expected(fault)
    return Entry(loc, f"expected {text}", expected=text, got=describe(fault["input"]))


def _expected(fault: Mapping[str, Any]) -> str:
    kind = fault["type"]
    if kind in _BOUNDS:
        return _BOUNDS[kind].format(**fault["ctx"])
    return _TYPES.get(kind) or str(fault["msg"]).removeprefix("Input should be ").removeprefix("Value error, ")
