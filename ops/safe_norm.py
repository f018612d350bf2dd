r"""Euclidean norm over the last axis, without overflow, and with the gradient 0 at 0.

y = |x| = √Σx²; dy/dx = u = x / |x|; d²y/dx² = (I - u uᵀ) / |x|. At x = 0 the norm has a kink: dx is 0 there (the least
of its subgradients), and so is the second order, where TensorFlow's own ``tf.norm`` gives NaN. An empty axis has norm
0.

All is computed from x / max|x|, whose squares do not overflow, and underflow only where negligible: in float32, x =
(3e30, 4e30) gives 5e30. A row with an infinity has norm inf and no direction: dx is NaN where x is infinite.

Source: Blue, "A Portable Fortran Program to Find the Euclidean Norm of a Vector", ACM TOMS 4 (1978), for the scaling.
"""

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor, custom_gradient


def scale_and_length(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return s and |x / s| over the last axis, which is kept: s = max|x|, or 1 where that is 0 or not finite.

    s is frozen, because s |x / s| does not depend on it. A length of 0 has the gradient 0.
    """
    largest = tf.stop_gradient(tf.reduce_max(tf.abs(x), axis=-1, keepdims=True))
    s = tf.where((largest > 0) & tf.math.is_finite(largest), largest, tf.ones_like(largest))
    squares = tf.reduce_sum(tf.square(x / s), axis=-1, keepdims=True)
    is_zero = tf.equal(squares, 0)
    root = tf.sqrt(tf.where(is_zero, tf.ones_like(squares), squares))
    return s, tf.where(is_zero, tf.zeros_like(root), root)


def direction(x: Tensor) -> Tensor:
    """Return u = x / |x|, and 0 at 0."""
    s, length = scale_and_length(x)
    return tf.math.divide_no_nan(x / s, length)


def forward(x: Tensor) -> Tensor:
    """y = s |x / s|."""
    s, length = scale_and_length(x)
    return tf.squeeze(s * length, axis=-1)


def vjp(x: Tensor, dy: Tensor) -> Tensor:
    """dx = u dy."""
    return direction(x) * tf.expand_dims(dy, -1)


def vjp_vjp(x: Tensor, dy: Tensor, ddx: Tensor) -> tuple[Tensor, Tensor]:
    """Return (I - u uᵀ) ddx dy / |x| for x, 0 at 0, and u·ddx for dy."""
    u, (s, length) = direction(x), scale_and_length(x)
    along = tf.reduce_sum(u * ddx, axis=-1, keepdims=True)
    across = tf.math.divide_no_nan((ddx - u * along) / s, length)
    return across * tf.expand_dims(dy, -1), tf.squeeze(along, axis=-1)


def reference(x: Array) -> Array:
    """y = |x| over the last axis."""
    return np.linalg.norm(np.asarray(x, np.float64), axis=-1)


OP = Op(
    name="safe_norm",
    summary="Euclidean norm over the last axis, without overflow and with the gradient 0 at 0",
    doc=__doc__,
    function=custom_gradient(forward, vjp, vjp_vjp),
    reference=reference,
    inputs=(Input("x", shape=("...", "N"), kinks=(0.0,), doc="the kink is where the whole vector is 0"),),
    outputs=(Output("y", shape=("...",)),),
    source="https://doi.org/10.1145/355769.355771",
    batching="leading_axes",
    examples=(
        Example("rows", {"x": [[3.0, 4.0], [-1.0, 2.0], [0.5, -0.25]]}),
        Example("vector", {"x": [1.0, -2.0, 2.0]}),
        Example("zero", {"x": [[0.0, 0.0], [3.0, 4.0]]}),
    ),
)
