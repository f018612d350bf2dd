"""Documents of the service as dataclasses, and back: each field is the member of its name, and others are left out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache, partial
from types import UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


def read(kind: type[T], document: Mapping[str, Any]) -> T:
    """Return a dataclass; members that a service of another version lacks have their defaults.

    Raises ``TypeError``, ``ValueError`` or ``AttributeError`` for a document of
    another kind.
    """
    return kind(**{name: convert(document[name]) for name, convert in _fields(kind) if name in document})


def written(value: Any) -> Any:
    """Return a dataclass, or a list of them, as a document; names that are numbers become text, as JSON has them."""
    if is_dataclass(value):
        return {field.name: written(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, list) and value and is_dataclass(cast(list[Any], value)[0]):
        return [*map(written, cast(list[Any], value))]
    if isinstance(value, dict) and isinstance(next(iter(cast(dict[Any, Any], value)), None), int):
        return {str(name): each for name, each in cast(dict[int, Any], value).items()}
    return [*cast(tuple[Any, ...], value)] if isinstance(value, tuple) else cast(Any, value)


@lru_cache(maxsize=64)
def _fields(kind: type[Any]) -> list[tuple[str, Callable[[Any], Any]]]:
    hints = get_type_hints(kind)
    return [(field.name, _reader(hints[field.name])) for field in fields(kind)]


def _reader(hint: Any) -> Callable[[Any], Any]:
    """Return the function that makes a value of this type from JSON."""
    args = get_args(hint)
    if is_dataclass(hint):
        return partial(read, cast(type[Any], hint))
    if hint is float:
        return float  # which also reads the strings NaN, Infinity and -Infinity
    if isinstance(hint, UnionType) and args[1:] == (type(None),):
        inner = _reader(args[0])
        return lambda value: None if value is None else inner(value)
    return _reader_of_items(get_origin(hint), args)


def _reader_of_items(origin: Any, args: Sequence[Any]) -> Callable[[Any], Any]:
    if origin in (list, tuple):
        item = _reader(args[0])
        make = cast(Callable[[Iterable[Any]], Any], origin)
        return lambda value: make(map(item, value))
    if origin in (dict, Mapping) and args[1] is not Any:
        key, item = int if args[0] is int else str, _reader(args[1])
        return lambda value: {key(name): item(each) for name, each in value.items()}
    return lambda value: value
