r"""Half the sum of squares of a polynomial fit to the sign of t: the eval ``llsq`` of GradBench.

y = ½ Σᵢ rᵢ², rᵢ = sign(tᵢ) - Σⱼ xⱼ tᵢʲ, over n points tᵢ = -1 + 2i/(n - 1); dy/dx = -Tᵀr with T the matrix of the
powers tᵢʲ; d²y/dx² = TᵀT. Smooth everywhere.

Source: the eval, after ``llsq_obj`` of cmpad. The gradient is TensorFlow's own.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from pydantic import Field

from ops import Array, Attrs, Example, Input, Op, Output, Tensor

MOST = 1 << 15


class LlsqAttrs(Attrs):
    """The number of points."""

    n: int = Field(default=16, ge=2, le=MOST, description="The number of points.")


def points(n: int) -> Array:
    """Return t, from -1 to 1."""
    return -1 + np.arange(n) * 2 / (n - 1)


def forward(x: Tensor, *, n: int) -> Tensor:
    """y = ½ |sign(t) - T x|²."""
    t = points(n)
    powers = tf.math.cumprod(
        tf.fill((n, tf.shape(x)[0]), tf.ones((), x.dtype)) * tf.constant(t[:, None], x.dtype), 1, True
    )
    residuals = tf.constant(np.sign(t), x.dtype) - tf.linalg.matvec(powers, x)
    return tf.reduce_sum(tf.square(residuals)) / 2


def reference(x: Array, *, n: int) -> Array:
    """y = ½ |sign(t) - T x|², in NumPy."""
    t = points(n)
    powers = np.vander(t, len(x), increasing=True)
    return np.sum((np.sign(t) - powers @ np.asarray(x, np.float64)) ** 2) / 2


def cost(dims: Mapping[str, Any]) -> int:
    """Return the multiply-adds for the most points of a usual request, since n is no shape."""
    return 2048 * dims["M"]


OP = Op(
    name="llsq",
    summary="half the sum of squares of a polynomial fit to the sign of t",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x", shape=("M",), dtypes=("float64", "float32")),),
    outputs=(Output("y", shape=(), dtypes=("float64", "float32")),),
    attrs=LlsqAttrs,
    cost=cost,
    source="https://github.com/gradbench/gradbench/tree/main/evals/llsq",
    examples=(Example("cubic", {"x": [0.5, 1.0, -0.25, 0.125]}), Example("few points", {"x": [1.0, 2.0]}, {"n": 5})),
)
