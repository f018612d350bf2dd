"""Check the fields of a declaration against their annotations, so that an error is raised at its line of the page."""

import inspect
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, cast, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

# The most characters of a value in a message.
MAX_SHOWN = 80


def check_fields(kind: type[Any], declaration: object, what: str) -> None:
    """Raise ``TypeError`` if a field of ``declaration``, as the dataclass ``kind`` declares it, has another type."""
    for name, adapter in _adapters(kind).items():
        value = getattr(declaration, name)
        try:
            adapter.validate_python(value)
        except ValidationError as error:
            raise TypeError(f"{what}: {name}{first_fault(error)}{_cure(value, error)}") from None


def check_arguments(name: str, function: Any, positional: list[str], keywords: list[str]) -> None:
    """Raise ``ValueError`` if a function cannot take these arguments.

    Only plain functions are checked: the signature of a decorated one, or of an object, may be that of another.
    """
    plain = cast("partial[Any]", function).func if isinstance(function, partial) else function
    if not inspect.isfunction(plain) or hasattr(plain, "__wrapped__"):
        return
    signature = inspect.signature(cast("Callable[..., Any]", function))
    try:
        signature.bind(*positional, **dict.fromkeys(keywords))
    except TypeError as error:
        expected = ", ".join([*positional, *(f"{keyword}=" for keyword in keywords)])
        got = f"{plain.__name__}{signature}: {error}"
        raise ValueError(f"{name}: expected a function that takes ({expected}), got {got}") from None


def check_text(text: str, what: str) -> None:
    """Raise ``ValueError`` if a text cannot be sent as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{what}: expected text without surrogates, got {shown(text)}") from None


def first_fault(error: ValidationError) -> str:
    """Return where the first fault is, what was expected there and what came: ``[0]: expected ..., got ...``."""
    faults = error.errors(include_url=False, include_context=False)
    # A union has a fault for each of its members, at the same location.
    members = [fault for fault in faults if fault["input"] is faults[0]["input"]]
    indices = [part for part in faults[0]["loc"] if isinstance(part, int)]
    texts = ("a value" if fault["type"] == "missing" else fault["msg"] for fault in members)
    expected = " or ".join(dict.fromkeys(text.removeprefix("Input should be ") for text in texts))
    return f"{''.join(f'[{part}]' for part in indices)}: expected {expected}, got {shown(faults[0]['input'])}"


def shown(value: object) -> str:
    """Return a value for a message, whatever its ``repr`` does."""
    try:
        text = repr(value)
    except BaseException:  # noqa: BLE001 - the author's __repr__ may raise anything
        text = f"an instance of {type(value).__name__}"
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN // 2]}…{text[-MAX_SHOWN // 2 :]}"


@cache
def _adapters(kind: type[Any]) -> Mapping[str, TypeAdapter[Any]]:
    config = ConfigDict(strict=True, arbitrary_types_allowed=True)
    return {name: TypeAdapter(hint, config=config) for name, hint in get_type_hints(kind, include_extras=True).items()}


def _cure(value: object, error: ValidationError) -> str:
    """Return how to correct the usual mistakes."""
    fault = error.errors(include_url=False)[0]
    match fault["type"]:
        case "tuple_type" if isinstance(value, list):
            return "; write (..., ) in place of [...]"
        case "tuple_type":
            return f"; write ({shown(value)},), with a comma"
        case "missing" | "too_long" if isinstance(value, tuple):
            return "; write two numbers, (low, high)"
        case "dataclass_exact_type" if isinstance(fault["input"], type):
            return f"; write {fault['input'].__name__}(...), an instance"
        case "is_subclass_of" if not isinstance(value, type):
            as_class = "class OpAttrs(Attrs) with a typed field and a default for each, and attrs=OpAttrs"
            written = as_class if isinstance(value, dict) else f"{type(value).__name__}, the class, without parentheses"
            return f"; write {written}"
        case _:
            # A dtype of TensorFlow or NumPy has a name.
            name: object = getattr(fault["input"], "name", None) if fault["type"] == "string_type" else None
            return f"; write {name!r}" if isinstance(name, str) else ""
