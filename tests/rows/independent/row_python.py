"""Σ x log(1 + x) of each row, in Python: it must not run on the event loop."""

import math

import numpy as np
import tensorflow as tf

from ops import UNCOMPILED, Array, Tensor, custom_gradient
from tests.gradcheck.wrong.making import BOTH, rows


def in_python(x: Array) -> Array:
    return np.array([math.fsum(value * math.log1p(value) for value in row.tolist()) for row in x], x.dtype)


def row_python(x: Tensor) -> Tensor:
    return tf.ensure_shape(tf.numpy_function(in_python, [x], x.dtype), x.shape[:-1])


def vjp(x: Tensor, dy: Tensor) -> Tensor:
    return (tf.math.log1p(x) + x / (1 + x)) * tf.expand_dims(dy, -1)


def reference(x: Array) -> Array:
    return (x * np.log1p(x)).sum(-1)


OP = rows(
    custom_gradient(row_python, vjp), reference, dtypes=BOTH, out=("N",), slot={"domain": (0.25, 3.0)}, modes=UNCOMPILED
)
