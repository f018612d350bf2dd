"""1 at the largest number of each row, 0 elsewhere; the gradient is that of softmax, on purpose."""

import numpy as np
import tensorflow as tf

from ops import Array, Arrays, Attrs, Claim, Surrogate, Tensor, custom_gradient
from tests.gradcheck.wrong.making import BOTH, rows
from tests.rows.making import apart


def row_hard_max(x: Tensor) -> Tensor:
    return tf.one_hot(tf.argmax(x, axis=-1), tf.shape(x)[-1], dtype=x.dtype)


def vjp(x: Tensor, dy: Tensor) -> Tensor:
    p = tf.nn.softmax(x)
    return p * (dy - tf.reduce_sum(p * dy, axis=-1, keepdims=True))


def reference(x: Array) -> Array:
    return np.eye(x.shape[-1])[x.argmax(-1)]


def softmax(primals: Arrays, at: Arrays) -> Arrays:
    e = np.exp(primals[0])
    return (e / e.sum(-1, keepdims=True),)


def claim(attrs: Attrs) -> Claim:
    return Claim(first=Surrogate(softmax))


OP = rows(custom_gradient(row_hard_max, vjp), reference, dtypes=BOTH, claim=claim, sample=apart)
