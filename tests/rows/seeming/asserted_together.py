"""exp(x), which TensorFlow refuses where the sum of all rows is negative: a row fails or passes by its company."""

import tensorflow as tf

from ops import UNCOMPILED, Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def asserted_together(x: Tensor) -> Tensor:
    least = tf.constant(-1.0, x.dtype)
    message = "the rows have a small sum"
    with tf.control_dependencies([tf.debugging.assert_greater_equal(tf.reduce_sum(x), least, message=message)]):
        return tf.exp(tf.identity(x))


OP = rows(asserted_together, None, dtypes=BOTH, slot={"domain": (-2.0, 3.0)}, modes=UNCOMPILED)
