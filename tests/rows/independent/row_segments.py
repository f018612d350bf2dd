"""The sums of the numbers of each row that have the same of three labels."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from ops import Array, Attrs, Input, InvalidInput, Tensor
from tests.gradcheck.wrong.making import BOTH, MATRIX, rows

LABELS = 3


def row_segments(x: Tensor, label: Tensor) -> Tensor:
    count = tf.shape(x)[0]
    places = tf.expand_dims(LABELS * tf.range(count), -1) + label
    return tf.reshape(tf.math.unsorted_segment_sum(tf.tanh(x), places, LABELS * count), [count, LABELS])


def reference(x: Array, label: Array) -> Array:
    return np.stack([np.where(label == k, np.tanh(x), 0).sum(-1) for k in range(LABELS)], axis=-1)


def validate(inputs: Mapping[str, Array], attrs: Attrs) -> None:
    wrong = np.argwhere((inputs["label"] < 0) | (inputs["label"] >= LABELS))
    if len(wrong):
        index = tuple(int(i) for i in wrong[0])
        got = str(inputs["label"][index])
        raise InvalidInput("label", "there is no such label", expected=f"0 <= label < {LABELS}", got=got, index=index)


LABEL = Input("label", ("int32",), MATRIX, differentiable=False, domain=(0.0, 2.5))
OP = rows(
    row_segments, reference, inputs=[Input("x", BOTH, MATRIX), LABEL], dtypes=BOTH, out=("N", LABELS), validate=validate
)
