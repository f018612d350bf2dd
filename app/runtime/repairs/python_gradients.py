"""Gradients of Python functions, which TensorFlow takes for 0 in part: those are errors, or NaN, here.

It declares ``tf.numpy_function`` to have none. If a term of a function is computed in NumPy, its part of the gradient
would be missing in silence; so would the second order of an op whose vjp is computed in NumPy, unless its page has one.
A graph fails, and mode eager has NaN. The gradient of ``tf.py_function`` counts as one that does not depend on the
inputs; its own gradient is NaN here.

Nothing fails before such a gradient is used: a page may stop gradients in front of the function.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import tensorflow as tf

# Private, because mode eager calls the function without a kernel, and no public API records what is none.
from tensorflow.python.eager import record
from tensorflow.python.framework.ops import gradient_registry  # no public API replaces a gradient
from tensorflow.python.ops import script_ops  # no public API wraps the calls

from app.runtime.repairs.replacing import replace
from ops import Tensor

IN_NUMPY = ("PyFunc", "PyFuncStateless")
"""The kernels of graphs that call functions in NumPy."""
NAMED = "no_gradient_of_"
"""How the names of kernels begin that fail in place of a gradient; the type of the operation follows."""
IMPOSSIBLE = [0] * 12  # a shape of more axes than any kernel takes
_IN_PYTHON, _ENTRY = "EagerPyFunc", "type"


def install() -> None:
    """Mark the gradients of functions in NumPy, and the second orders of others; show tapes the calls of mode eager."""
    entries: dict[str, dict[str, Any]] = gradient_registry._registry
    for kernel in IN_NUMPY:
        entries[kernel][_ENTRY] = _failing
    function: Any = script_ops.py_func_common
    if not hasattr(function, "__wrapped__"):
        replace(function, _recorded(function))
        entries[_IN_PYTHON][_ENTRY] = _of_first_order(entries[_IN_PYTHON][_ENTRY])


def _recorded(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def recorded(func: Any, inp: Sequence[Any], *args: Any, **options: Any) -> Any:
        found = function(func, inp, *args, **options)
        if tf.executing_eagerly():
            results, xs = tf.nest.flatten(found), [*map(tf.convert_to_tensor, inp)]
            # A tape computes this also where a derivative in other inputs alone is wanted.
            record.record_operation(IN_NUMPY[0], [y for y in results if y is not None], xs, lambda *_: _unknown(xs))
        return found

    return recorded


def _failing(op: Any, *dys: Any) -> list[Tensor | None]:
    """Return gradients whose kernel fails, and shows the type of ``op`` by its name, unless a graph prunes it."""
    del dys
    return [_failing_at(x, f"{NAMED}{op.type}") if _has_gradient(x) else None for x in op.inputs]


def _failing_at(x: Tensor, name: str) -> Tensor:
    """Return a tensor like ``x`` whose kernel fails, as do those of its derivatives."""

    @tf.custom_gradient
    def fails(x: Tensor) -> Any:
        # If the graph knew the shape of either, it could not be made.
        wrong = tf.ensure_shape(tf.compat.v1.placeholder_with_default(x, None), IMPOSSIBLE, name)
        y = tf.ensure_shape(tf.compat.v1.placeholder_with_default(wrong, None), x.shape)

        def gradient(dy: Tensor) -> Tensor:
            del dy
            return _failing_at(x, name)

        return y, gradient

    return fails(x)


def _of_first_order(gradient: Callable[..., Any]) -> Callable[..., Any]:
    """Return a gradient whose own one in the inputs is NaN."""

    @wraps(gradient)
    def of_first_order(op: Any, *dys: Any) -> list[Any]:
        dxs = tf.nest.flatten(gradient(op, *dys))
        return [_marked(dx, *op.inputs) if _has_gradient(dx) else dx for dx in dxs]

    return of_first_order


@tf.custom_gradient
def _marked(dx: Tensor, *xs: Tensor) -> Any:
    def gradient(ddx: Tensor) -> list[Tensor | None]:
        return [ddx, *_unknown(xs)]

    return tf.identity(dx), gradient


def _unknown(xs: Sequence[Tensor]) -> list[Tensor | None]:
    return [x * float("nan") if _has_gradient(x) else None for x in xs]


def _has_gradient(x: Tensor) -> bool:
    return x.dtype.is_floating or x.dtype.is_complex
