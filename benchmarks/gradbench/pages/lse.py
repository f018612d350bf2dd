r"""The logarithm of a sum of exponentials, by its primitive parts: the eval ``lse`` of GradBench.

y = a + log Σᵢ exp(xᵢ - a) with a = max x, which is frozen, because y does not depend on it; dy/dx = softmax(x) = p;
d²y/dx² = diag(p) - p pᵀ. Smooth everywhere.

Source: the eval. The gradient is TensorFlow's own.
"""

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor


def forward(x: Tensor) -> Tensor:
    """y = a + log Σ exp(x - a)."""
    a = tf.stop_gradient(tf.reduce_max(x))
    return a + tf.math.log(tf.reduce_sum(tf.exp(x - a)))


def reference(x: Array) -> Array:
    """y = log Σ exp(x), in NumPy."""
    return np.logaddexp.reduce(np.asarray(x, np.float64))


OP = Op(
    name="lse",
    summary="the logarithm of a sum of exponentials",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x", shape=("N",), dtypes=("float64", "float32")),),
    outputs=(Output("y", shape=(), dtypes=("float64", "float32")),),
    source="https://github.com/gradbench/gradbench/tree/main/evals/lse",
    examples=(Example("small", {"x": [1.0, 2.0, -0.5, 0.25]}),),
)
