"""How a function is called: its arguments by name, which it takes by position."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from pullback.errors import BadArgument

Tree: TypeAlias = Any
Called = Callable[..., Any]
BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def flatten(tree: Tree, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a tree by name. A leaf is anything but a dict, list or tuple; ``name`` is the tree's."""
    for key, child in _children(tree):
        yield from flatten(child, f"{name}.{key}" if name else key)
    if not isinstance(tree, Mapping | list | tuple):
        yield name, tree


def rebuild(tree: Tree, name: str, leaf: Callable[[str, Any], Any]) -> Tree:
    """Return the tree with ``leaf(name, value)`` in place of each leaf."""
    if not isinstance(tree, Mapping | list | tuple):
        return leaf(name, tree)
    found = {key: rebuild(child, f"{name}.{key}" if name else key, leaf) for key, child in _children(tree)}
    if isinstance(tree, Mapping):
        return dict(zip(cast(Mapping[Any, Any], tree), found.values(), strict=True))
    kind = cast(Any, type(cast(Any, tree)))
    return kind(*found.values()) if hasattr(kind, "_fields") else kind(found.values())


def as_arrays(tree: Tree) -> Tree:
    """Return the tree with an array in place of each list of numbers."""
    if isinstance(tree, Mapping):
        return {key: as_arrays(child) for key, child in cast(Mapping[Any, Any], tree).items()}
    if isinstance(tree, list):
        items = cast(list[Any], tree)
        is_flat = bool(items) and all(isinstance(item, int | float) for item in items)
        return np.asarray(items) if is_flat else [as_arrays(item) for item in items]
    return tree


def _children(tree: Tree) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        yield from ((str(key), child) for key, child in cast(Mapping[Any, Any], tree).items())
    elif isinstance(tree, list | tuple):
        names = getattr(cast(Any, tree), "_fields", None)
        for i, child in enumerate(cast(list[Any], tree)):
            yield (str(i) if names is None else names[i]), child


class Arguments(NamedTuple):
    """The arguments of a call."""

    positional: list[Tree]
    by_keyword: dict[str, Tree]


def parameters_of(function: Called) -> list[inspect.Parameter]:
    """Return the parameters of a function, none for one in C that does not tell them."""
    try:
        return [*inspect.signature(getattr(function, "forward", function)).parameters.values()]
    except (ValueError, TypeError):
        return []


def by_position(function: Called) -> Called:
    """Return a function that takes its arguments by name and passes them by position, as far as it can.

    In eager mode, TensorFlow ignores a custom gradient in what is passed by name.
    """

    @wraps(function)
    def called(**arguments: Any) -> Any:
        found = ordered(function, arguments)
        return function(*found.positional, **found.by_keyword)

    return called


def ordered(function: Called, arguments: Mapping[str, Tree]) -> Arguments:
    """Return arguments by position, as far as they can be."""
    parameters, left, positional = parameters_of(function), dict(arguments), list[Tree]()
    for name in [each.name for each in parameters if each.kind in BY_POSITION]:
        if name not in left:
            break
        positional.append(left.pop(name))
    if _takes_more(parameters):
        by_keyword = {each.name for each in parameters if each.kind == each.KEYWORD_ONLY}
        positional += [left.pop(name) for name in [*left] if name not in by_keyword]
    return Arguments(positional, left)


def by_name(arguments: Any, function: Called) -> dict[str, Tree]:
    """Return arguments by name: a dict has the names, a tuple their order, and all else is the first argument.

    Raises ``BadArgument`` for more of them than the function takes, and for a list where it needs several.
    """
    if isinstance(arguments, dict):
        return cast(dict[str, Tree], arguments)
    values = cast(tuple[Tree, ...], arguments) if isinstance(arguments, tuple) else (arguments,)
    parameters = parameters_of(function)
    names = [each.name for each in parameters if each.kind in BY_POSITION]
    if _takes_more(parameters):
        names += [f"x{i}" for i in range(len(names), len(values))] if len(values) > 1 or names else ["x"]
    needed = [each.name for each in parameters if each.kind in BY_POSITION and each.default is each.empty]
    if isinstance(arguments, list) and len(needed) > 1:
        several = ", ".join(needed)
        raise BadArgument(f"expected arguments for {several}, got a list, which is one: write ({several})")
    if len(values) > len(names):
        raise BadArgument(
            f"expected at most {len(names)} arguments, got {len(values)}: return a list for one of numbers"
        )
    return dict(zip(names, values, strict=False))


def _takes_more(parameters: list[inspect.Parameter]) -> bool:
    return not parameters or any(each.kind == each.VAR_POSITIONAL for each in parameters)
