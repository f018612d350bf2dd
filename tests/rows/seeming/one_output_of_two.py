"""x², and the mean of all rows: only the second output joins rows."""

import tensorflow as tf

from ops import Output, Tensor
from tests.gradcheck.wrong.making import BOTH, MATRIX, rows


def one_output_of_two(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * x, tf.zeros_like(x) + tf.reduce_mean(x, axis=0)


OP = rows(one_output_of_two, None, dtypes=BOTH, outputs=(Output("y", BOTH, MATRIX), Output("mean", BOTH, MATRIX)))
