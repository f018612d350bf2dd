"""The cosine of the angle between two vectors of each row, softened where they are short."""

import numpy as np
import tensorflow as tf

from ops import Array, Input, Tensor
from tests.gradcheck.wrong.making import BOTH, MATRIX, rows


def row_cosine(x: Tensor, z: Tensor) -> Tensor:
    lengths = (1 + tf.reduce_sum(x * x, axis=-1)) * (1 + tf.reduce_sum(z * z, axis=-1))
    return tf.reduce_sum(x * z, axis=-1) / tf.sqrt(lengths)


def reference(x: Array, z: Array) -> Array:
    return (x * z).sum(-1) / np.sqrt((1 + (x * x).sum(-1)) * (1 + (z * z).sum(-1)))


OP = rows(row_cosine, reference, inputs=[Input(name, BOTH, MATRIX) for name in ("x", "z")], dtypes=BOTH, out=("N",))
