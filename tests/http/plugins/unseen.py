"""y = e^x in NumPy, of which no rounding is seen, and z = sin x, of which all are."""

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor, custom_gradient

BOTH = ("float64", "float32")


def forward(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return e^x and sin x."""
    return tf.ensure_shape(tf.numpy_function(np.exp, [x], x.dtype, stateful=False), x.shape), tf.sin(x)


def vjp(x: Tensor, dy: Tensor, dz: Tensor) -> Tensor:
    """dx = e^x dy + cos x dz."""
    return tf.exp(x) * dy + tf.cos(x) * dz


def reference(x: Array) -> tuple[Array, Array]:
    """Return e^x and sin x."""
    return np.exp(x), np.sin(x)


OP = Op(
    name="unseen",
    summary="e^x in NumPy, and sin x",
    doc=__doc__,
    function=custom_gradient(forward, vjp),
    reference=reference,
    inputs=(Input("x", dtypes=BOTH, shape=("n",)),),
    outputs=(Output("y", dtypes=BOTH, shape=("n",)), Output("z", dtypes=BOTH, shape=("n",))),
    source="a test",
    modes=("graph", "eager"),
    examples=(Example("three", {"x": [0.5, -1.0, 2.0]}),),
)
