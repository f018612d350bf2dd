"""The gradient functions of a page: which an op has, how they are called, and what they may return."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar, cast

import tensorflow as tf

from pullback.ops._faults import OpFault, located

Tensor: TypeAlias = tf.Tensor
Function: TypeAlias = Callable[..., Any]
Value = TypeVar("Value")

RULES = "pullback_rules"
"""The attribute of an op's function that has its ``Rules``."""


@dataclass(frozen=True)
class Rules:
    """The gradient functions of an op; ``returned_none`` has the positions where ``vjp`` has returned ``None``."""

    vjp: Function
    vjp_vjp: Function
    returned_none: set[int] = field(default_factory=set[int])


def rules_of(function: Function) -> Rules | None:
    """Return the gradient functions that ``custom_gradient`` gave to an op, ``None`` for any other op."""
    return vars(function).get(RULES) if hasattr(function, "__dict__") else None


def has_gradient(x: Tensor) -> bool:
    """Return whether gradients reach a tensor: its numbers are floats or complex."""
    return x.dtype.is_floating or x.dtype.is_complex


def dense(gradient: Any, like: Tensor | None) -> Any:
    """Return a sparse gradient (``IndexedSlices``) as a tensor, and any other as it is.

    ``like`` is what it is the gradient of. Slices that do not know its shape stay as they are where it is ``None``.
    """
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    shape = tf.shape(like) if gradient.dense_shape is None and like is not None else gradient.dense_shape
    return gradient if shape is None else tf.math.unsorted_segment_sum(gradient.values, gradient.indices, shape[0])


def filled(slots: Sequence[Any], values: Iterable[Value]) -> list[Value | None]:
    """Return a value for each slot that is not ``None``, in their order, and ``None`` for the others."""
    rest = iter(values)
    return [None if slot is None else next(rest) for slot in slots]


def sent(slots: Sequence[Any], values: Sequence[Value]) -> list[Value]:
    """Return the values of the slots that are not ``None``."""
    return [value for slot, value in zip(slots, values, strict=True) if slot is not None]


def call_rule(
    rule: Function, args: Sequence[Any], attrs: Mapping[str, Any], kinds: str = "", *more: Sequence[Any]
) -> Any:
    """Call a rule of a page; raise ``OpFault``, with the ``kinds`` of its arguments, if it does not take them.

    The arguments ``more`` follow: the first of these sequences that the rule takes, or the last.
    """
    signature = inspect.signature(rule)
    for rest in more:
        every = (*args, *rest)
        if rest is more[-1] or _binds(signature, every, attrs):
            return call_rule(rule, every, attrs, kinds)
    try:
        signature.bind(*args, **attrs)
    except TypeError as error:
        got = f"{rule.__name__}({', '.join(inspect.signature(rule).parameters)})"
        expected = f"{len(args)} by position{kinds}" + (f", and {', '.join(attrs)} by keyword" if attrs else "")
        message = "takes the wrong arguments"
        fault = OpFault(
            rule.__name__, "its arguments", expected=expected, got=got, message=message, where=located(rule)
        )
        raise fault from error
    return rule(*args, **attrs)


def _binds(signature: inspect.Signature, args: Sequence[Any], attrs: Mapping[str, Any]) -> bool:
    try:
        signature.bind(*args, **attrs)
    except TypeError:
        return False
    return True


def _slots(function: Function, count: int) -> list[str]:
    """Return the names of the first ``count`` arguments of a function, which may take any number of them."""
    found = inspect.signature(function).parameters.values()
    named = [each.name for each in found if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    return [*named[:count], *(f"value {i}" for i in range(len(named), count))]


def checked_gradients(
    function: Function, result: Any, wanted: Sequence[Tensor | None], names: Sequence[str] = ()
) -> list[Tensor | None]:
    """Return the results of a gradient function as a list, with one entry for each tensor in ``wanted``.

    The entry is ``None`` for an input that is not sent, whatever the function returns for it. Raises ``OpFault`` for a
    wrong count, anything but a tensor or ``None``, a wrong dtype, or a shape that is known to be wrong. Sparse
    gradients (``IndexedSlices``) are made dense.
    """
    slots = names or _slots(function, len(wanted))
    values, got = many(result), shown_kind(result)
    if len(values) != len(wanted) or isinstance(result, Mapping):
        expected = f"one value for each of {', '.join(slots[: len(wanted)])}"
        message, where = "returned the wrong number of values", located(function)
        raise OpFault(function.__name__, "its inputs", expected=expected, got=got, message=message, where=where)
    checked: list[Tensor | None] = []
    for slot, value, like in zip(slots, values, wanted, strict=False):
        gradient = None if like is None else dense(value, like)
        if like is not None and gradient is not None:
            expected = f"a tensor of {like.dtype.name} and shape {like.shape}, or None"
            if not isinstance(gradient, tf.Tensor):
                got = f"{gradient!r} ({type(gradient).__name__})"[:200]
                raise OpFault(function.__name__, slot, expected=expected, got=got, where=located(function))
            if gradient.dtype != like.dtype or not like.shape.is_compatible_with(gradient.shape):
                got = f"{gradient.dtype.name} and shape {gradient.shape}"
                raise OpFault(function.__name__, slot, expected=expected, got=got, where=located(function))
        checked.append(gradient)
    return checked


def shown_kind(result: object) -> str:
    """Return how many values a function has returned, or what in their place, for messages: ``a dict of a, b``."""
    match result:
        case None:
            return "None"
        case tuple() | list():
            return str(len(cast(Sequence[Any], result)))
        case Mapping():
            return f"a dict of {', '.join(map(str, cast(Mapping[Any, Any], result)))}"[:200]
        case _:
            return "1"


def many(values: Any) -> list[Any]:
    """Return the results of a function as a list; a bare value becomes a list of one."""
    return list(cast(Sequence[Any], values)) if isinstance(values, (tuple, list)) else [values]
