"""The logarithm of the sum of each row, which TensorFlow refuses in a call if any row has a sum below 1/8."""

import numpy as np
import tensorflow as tf

from ops import UNCOMPILED, Array, Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def row_asserted(x: Tensor) -> Tensor:
    total = tf.reduce_sum(x, axis=-1)
    least = tf.constant(0.125, x.dtype)
    with tf.control_dependencies([tf.debugging.assert_greater_equal(total, least, message="a row has a small sum")]):
        return tf.math.log(tf.identity(total))


def reference(x: Array) -> Array:
    return np.log(x.sum(-1))


OP = rows(row_asserted, reference, dtypes=BOTH, out=("N",), slot={"domain": (0.25, 3.0)}, modes=UNCOMPILED)
