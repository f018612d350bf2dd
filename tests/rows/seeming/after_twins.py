"""x²; 1 more everywhere if two rows are equal, as repeated rows are."""

import tensorflow as tf

from ops import Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def after_twins(x: Tensor) -> Tensor:
    distances = tf.reduce_sum(tf.square(tf.expand_dims(x, 0) - tf.expand_dims(x, 1)), axis=-1)
    equal = tf.reduce_sum(tf.cast(tf.equal(distances, 0), tf.int32))
    return x * x + tf.cast(equal > tf.shape(x)[0], x.dtype)


OP = rows(after_twins, None, dtypes=BOTH)
