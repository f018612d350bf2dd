"""Each row plus the row that an index of its own names, counted among all rows."""

import tensorflow as tf

from ops import Input, Tensor
from tests.gradcheck.wrong.making import BOTH, MATRIX, rows


def neighbours(x: Tensor, other: Tensor) -> Tensor:
    return x + tf.gather(x, other % tf.shape(x)[0])


OTHER = Input("other", ("int32",), ("N",), differentiable=False, domain=(0.0, 5.5))
OP = rows(neighbours, None, inputs=[Input("x", BOTH, MATRIX), OTHER], dtypes=BOTH)
