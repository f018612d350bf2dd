"""The magnitudes on the diagonal of R, with A + 4I = QR, for a 3 by 3 matrix A of each row."""

import numpy as np
import tensorflow as tf

from ops import Array, Input, Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def row_qr(a: Tensor) -> Tensor:
    # TensorFlow's gradient of qr needs a known shape.
    a = tf.ensure_shape(a, [None, 3, 3])
    _, r = tf.linalg.qr(a + 4 * tf.eye(3, dtype=a.dtype))
    return tf.abs(tf.linalg.diag_part(r))


def reference(a: Array) -> Array:
    shifted = a + 4 * np.eye(3)
    return np.abs(np.diagonal(np.stack([np.linalg.qr(one)[1] for one in shifted]), axis1=-2, axis2=-1))


A = Input("a", BOTH, ("N", 3, 3), domain=(-0.5, 0.5))
OP = rows(row_qr, reference, inputs=[A], dtypes=BOTH, out=("N", 3))
