"""How a function is called: its arguments by name, which it takes by position."""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, NamedTuple, cast

from pullback.errors import BadArgument
from pullback.gradcheck.of.trees import Tree

Called = Callable[..., Any]
BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


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
