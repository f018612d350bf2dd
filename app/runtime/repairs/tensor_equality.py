"""``==`` and ``!=`` of tensors in graphs that are built outside of functions, as in mode v1.

TensorFlow compares the objects there, and the elements everywhere else: ``tf.where(x == 0, 1, tf.sin(x) / x)`` would
silently be NaN at 0 in mode v1.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ops import Tensor


def install() -> None:
    """Compare the elements of tensors in every graph; call this before any program is built."""
    owner: Any = tf.Tensor
    if not hasattr(owner.__eq__, "__wrapped__"):
        owner.__eq__ = _elementwise(owner.__eq__, tf.raw_ops.Equal)
        owner.__ne__ = _elementwise(owner.__ne__, tf.raw_ops.NotEqual)


def _elementwise(operator: Callable[[Tensor, Any], Any], compare: Callable[..., Tensor]) -> Callable[..., Any]:
    def compared(tensor: Tensor, other: Any) -> Any:
        if other is None or tf.compat.v1.executing_eagerly_outside_functions():
            return operator(tensor, other)
        return compare(x=tensor, y=other, incompatible_shape_error=False)  # what TensorFlow's operator calls elsewhere

    compared.__wrapped__ = operator  # pyright: ignore[reportFunctionMemberAccess] - marks that this is installed
    return compared
