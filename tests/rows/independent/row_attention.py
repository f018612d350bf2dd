"""Attention inside each row: softmax(q kᵀ) v, each of shape (N, T, D)."""

import numpy as np
import tensorflow as tf

from ops import Array, Input, Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def row_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return tf.matmul(tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / 4), v)


def reference(q: Array, k: Array, v: Array) -> Array:
    e = np.exp(q @ np.swapaxes(k, -1, -2) / 4)
    return e / e.sum(-1, keepdims=True) @ v


INPUTS = [Input(name, BOTH, ("N", "T", "D")) for name in ("q", "k", "v")]
OP = rows(row_attention, reference, inputs=INPUTS, dtypes=BOTH, out=("N", "T", "D"))
