"""The identity, with its cotangent shortened where all of it is longer than 1."""

import numpy as np
import tensorflow as tf

from ops import Arrays, Attrs, Claim, Formula, Tensor, custom_gradient
from tests.gradcheck.wrong.making import BOTH, rows


def clipped_by_global_norm(x: Tensor) -> Tensor:
    return tf.identity(x)


def vjp(x: Tensor, dy: Tensor) -> Tensor:
    length = tf.sqrt(tf.reduce_sum(dy * dy))
    return dy / tf.maximum(length, 1)


def claim(attrs: Attrs) -> Claim:
    return Claim(first=Formula(clipped), linear=False)


def clipped(primals: Arrays, cotangents: Arrays) -> Arrays:
    return (cotangents[0] / max(1.0, float(np.linalg.norm(cotangents[0]))),)


OP = rows(custom_gradient(clipped_by_global_norm, vjp), None, dtypes=BOTH, claim=claim)
