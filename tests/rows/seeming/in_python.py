"""Each row less the mean of all rows, in Python, where no graph shows it."""

import tensorflow as tf

from ops import UNCOMPILED, Array, Tensor, custom_gradient
from tests.gradcheck.wrong.making import BOTH, rows


def centred(x: Array) -> Array:
    return x - x.mean(0)


def in_python(x: Tensor) -> Tensor:
    return tf.ensure_shape(tf.numpy_function(centred, [x], x.dtype), x.shape)


def vjp(x: Tensor, dy: Tensor) -> Tensor:
    return dy - tf.reduce_mean(dy, axis=0)


OP = rows(custom_gradient(in_python, vjp), None, dtypes=BOTH, modes=UNCOMPILED)
