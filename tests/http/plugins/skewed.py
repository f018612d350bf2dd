"""y = x·z, whose declared second order is not a symmetric matrix.

∂g_x/∂x = dy M with M[a][b] = N a + b, ∂g_x/∂z = 3 dy, ∂g_z/∂x = 5 dy, ∂g_z/∂z = 0.
"""

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor, custom_gradient


def forward(x: Tensor, z: Tensor) -> Tensor:
    """y = Σ x z."""
    return tf.reduce_sum(x * z)


def vjp(x: Tensor, z: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    """Return z dy and x dy."""
    return z * dy, x * dy


def vjp_vjp(x: Tensor, z: Tensor, dy: Tensor, ddx: Tensor, ddz: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return Mᵀ ddx + 5 ddz for x, 3 ddx for z."""
    n = tf.size(x)
    m = tf.cast(tf.reshape(tf.range(n * n), [n, n]), x.dtype)
    return dy * (tf.linalg.matvec(m, ddx, transpose_a=True) + 5 * ddz), 3 * dy * ddx, tf.reduce_sum(z * ddx + x * ddz)


def reference(x: Array, z: Array) -> Array:
    """y = x·z."""
    return np.dot(x, z)


OP = Op(
    name="skewed",
    summary="x·z, with an asymmetric second order",
    doc=__doc__,
    function=custom_gradient(forward, vjp, vjp_vjp),
    reference=reference,
    inputs=(Input("x", shape=("N",)), Input("z", shape=("N",))),
    outputs=(Output("y", shape=()),),
    mechanism="custom_gradient",
    source="a test",
    examples=(Example("three", {"x": [1.0, 2.0, 3.0], "z": [4.0, 5.0, 6.0]}),),
)
