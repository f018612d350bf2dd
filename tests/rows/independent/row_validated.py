"""√ of the sum of each row; a negative number is refused before any call, with its place."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from ops import Array, Attrs, InvalidInput, Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def row_validated(x: Tensor) -> Tensor:
    return tf.sqrt(tf.reduce_sum(x, axis=-1))


def reference(x: Array) -> Array:
    return np.sqrt(x.sum(-1))


def validate(inputs: Mapping[str, Array], attrs: Attrs) -> None:
    wrong = np.argwhere(inputs["x"] < 0)
    if len(wrong):
        index = tuple(int(i) for i in wrong[0])
        got = str(inputs["x"][index])
        raise InvalidInput("x", "a number is negative", expected="x >= 0", got=got, index=index)


OP = rows(row_validated, reference, dtypes=BOTH, out=("N",), slot={"domain": (0.25, 3.0)}, validate=validate)
