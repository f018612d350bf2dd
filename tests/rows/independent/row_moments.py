"""The mean, the variance and the third moment of each row: three outputs."""

import tensorflow as tf

from ops import Array, Output, Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def row_moments(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    mean = tf.reduce_mean(x, axis=-1)
    centred = x - tf.expand_dims(mean, -1)
    return mean, tf.reduce_mean(tf.square(centred), axis=-1), tf.reduce_mean(centred * centred * centred, axis=-1)


def reference(x: Array) -> tuple[Array, Array, Array]:
    return x.mean(-1), x.var(-1), ((x - x.mean(-1, keepdims=True)) ** 3).mean(-1)


NAMES = ("mean", "variance", "third")
OP = rows(row_moments, reference, dtypes=BOTH, outputs=tuple(Output(name, BOTH, ("N",)) for name in NAMES))
