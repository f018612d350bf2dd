"""How a function gets its gradient: what the helpers that made it say, and otherwise what its code names.

=========================  ========================================================================================
``custom_gradient``        by ``tf.custom_gradient``, or by the helper of this name
``gradient_override_map``  by other gradients for the TensorFlow ops inside: ``override``
``stop_gradient``          by ``tf.stop_gradient`` in the expression: ``additive``, ``multiplicative``, or your own
``register_gradient``      by a gradient that ``tf.RegisterGradient`` has for its op type
``symbolic_gradient``      in C++, by ``REGISTER_OP_GRADIENT``: ``symbolic_gradient`` in its vjp
``by_attribute``           by one of these, which an attribute chooses
``composition``            by none of these: TensorFlow's own derivative of the functions that it calls
=========================  ========================================================================================
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType
from typing import Any, Literal, TypeAlias, TypeVar, cast

Mechanism = Literal[
    "custom_gradient",
    "gradient_override_map",
    "stop_gradient",
    "register_gradient",
    "symbolic_gradient",
    "by_attribute",
    "composition",
]
F = TypeVar("F", bound=Callable[..., Any])
Found: TypeAlias = set[Mechanism]

INFERRED = cast(Mechanism, None)
"""The default of a declaration, which ``inferred`` replaces."""
MECHANISM = "pullback_mechanism"
"""The attribute of a function, made by a helper or a helper itself, that has its mechanism."""
# The gradient in C++ is called in the vjp of a custom_gradient, so both are true of such a function.
BOTH_TRUE: Found = {"custom_gradient", "symbolic_gradient"}


def marked(function: F, mechanism: Mechanism) -> F:
    """Mark a function with its mechanism, if it takes attributes; return it."""
    if hasattr(function, "__dict__"):
        vars(function)[MECHANISM] = mechanism
    return function


def made_by(function: Any) -> Mechanism | None:
    """Return the mechanism of the helper, or of ``tf.custom_gradient``, that made a function; ``None`` for others."""
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
    # Not by getattr, which imports modules that TensorFlow loads lazily.
    own = getattr(function, "__dict__", {})
    if mark := own.get(MECHANISM):
        return mark
    # Private, and the one trace that tf.custom_gradient leaves on what it returns.
    decorator = own.get("_tf_decorator")
    return "custom_gradient" if getattr(decorator, "decorator_name", "") == "custom_gradient" else None


def inferred(function: Any) -> Mechanism:
    """Return the mechanism of a function: of the helper that made it, or that its code and its page use.

    If they use several, or none, the function is a composition.
    """
    if mechanism := made_by(function):
        return mechanism
    used = used_by(function)
    if not used and "register_gradient" in map(made_by, vars_of(function).values()):
        # The code names the op of that type, not its gradient.
        return "register_gradient"
    return used.pop() if len(used) == 1 else "composition"


def used_by(function: Any) -> Found:
    """Return the mechanisms of all that the code of a function names, and of the code of functions beside it."""
    found, seen, rest = Found(), set[int](), [function]
    while rest:
        value = rest.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if value is not function and (mechanism := made_by(value)):
            found.add(mechanism)
        elif isinstance(value, Mapping):
            rest += cast("Mapping[Any, Any]", value).values()
        elif isinstance(value, FunctionType) and vars_of(value) is vars_of(function):
            names = set(_names(value.__code__))
            found |= cast(Found, {"stop_gradient"} & names)
            rest += [vars_of(value)[name] for name in names & vars_of(value).keys()]
            rest += [cell.cell_contents for cell in value.__closure__ or () if _is_full(cell)]
    return found


def vars_of(function: Any) -> dict[str, Any]:
    """Return the global variables of a function in Python; none for anything else."""
    return getattr(function, "__globals__", {})


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_full(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
