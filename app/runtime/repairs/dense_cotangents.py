"""What TensorFlow passes to gradient functions: a tensor for each output that has numbers.

Behind ``tf.gather`` and its like, TensorFlow 2.21 passes ``IndexedSlices``, which most functions cannot multiply. To
those of ``tf.custom_gradient``, it passes zeros for an output of whole numbers in eager mode, and ``None`` in a graph.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import tensorflow as tf

# Private, because nothing public sees the calls of gradient functions: those of tapes, and those that are registered.
from tensorflow.python.eager import record
from tensorflow.python.framework.ops import gradient_registry  # for the same reason

from ops import Tensor, many
from pullback.ops._rules import dense

CUSTOM_GRADIENT = "CustomGradient-"
"""How the names begin under which TensorFlow registers the functions of ``tf.custom_gradient``."""


def install() -> None:
    """Convert what gradient functions get; call this before any program is built."""
    if not hasattr(record.record_operation, "__wrapped__"):
        record.record_operation = _recording(record.record_operation)
        registries: Any = type(gradient_registry)
        registries.lookup = _looking_up(registries.lookup)


def _recording(record_operation: Callable[..., None]) -> Callable[..., None]:
    @wraps(record_operation)
    def recorded(
        op_type: str,
        output_tensors: Sequence[Tensor],
        input_tensors: Sequence[Tensor],
        backward_function: Callable[..., Any],
        forward_function: Any = None,
    ) -> None:
        def backward(*dys: Any) -> Any:
            return _dense(backward_function(*map(dense, dys, output_tensors)), input_tensors)

        record_operation(op_type, output_tensors, input_tensors, backward, forward_function)

    return recorded


def _looking_up(lookup: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(lookup)
    def found(registry: Any, name: str | bytes) -> Any:
        gradient = lookup(registry, name)
        if registry is not gradient_registry or gradient is None:
            return gradient
        is_custom = (name.decode() if isinstance(name, bytes) else name).startswith(CUSTOM_GRADIENT)

        def given(node: Any, *dys: Any) -> Any:
            ys = node.outputs or [None] * len(dys)  # in eager mode, it may lack outputs that nothing needs
            dxs = gradient(node, *(_tensor(dy, y, is_custom) for dy, y in zip(dys, ys, strict=True)))
            return _dense(dxs, node.inputs) if is_custom else dxs

        return given

    return found


def _tensor(dy: Any, y: Tensor | None, is_custom: bool) -> Any:
    if dy is None and y is not None and is_custom and (y.dtype.is_integer or y.dtype.is_bool):
        return tf.zeros_like(y)
    return dense(dy, y)


def _dense(dxs: Any, xs: Sequence[Tensor]) -> list[Any]:
    """Return gradients, slices without a shape among them, as tensors; TensorFlow reports a wrong number of them."""
    found = many(dxs)
    return [*map(dense, found, xs), *found[len(xs) :]]
