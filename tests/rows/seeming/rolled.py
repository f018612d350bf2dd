"""Each row less the row before it, the first less the last."""

import tensorflow as tf

from ops import Tensor
from tests.gradcheck.wrong.making import BOTH, rows


def rolled(x: Tensor) -> Tensor:
    return x - tf.roll(x, shift=1, axis=0)


OP = rows(rolled, None, dtypes=BOTH)
