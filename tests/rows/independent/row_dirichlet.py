"""Σ log Γ(x) - log Γ(Σ x) of each row, whose kernels have many branches."""

import math

import numpy as np
import tensorflow as tf

from ops import Array, Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def row_dirichlet(x: Tensor) -> Tensor:
    return tf.reduce_sum(tf.math.lgamma(x), axis=-1) - tf.math.lgamma(tf.reduce_sum(x, axis=-1))


def reference(x: Array) -> Array:
    lgamma = np.vectorize(math.lgamma)
    return lgamma(x).sum(-1) - lgamma(x.sum(-1))


OP = rows(row_dirichlet, reference, dtypes=BOTH, out=("N",), slot={"domain": (0.5, 4.0), "poles": (0.0,)})
