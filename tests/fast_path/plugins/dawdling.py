"""y = x, a while later: an elementwise op that must not run on the event loop."""

import time

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor

DAWDLES_S = 0.4


def dawdle(x: Array) -> Array:
    """Return x, later."""
    time.sleep(DAWDLES_S)
    return x


def forward(x: Tensor) -> Tensor:
    """y = x, later."""
    y = tf.numpy_function(dawdle, [x], x.dtype)
    return tf.ensure_shape(y, x.shape)


OP = Op(
    name="dawdling",
    summary="x, a while later",
    doc=__doc__,
    function=forward,
    reference=np.asarray,
    inputs=(Input("x"),),
    outputs=(Output("y", differentiable=False),),
    mechanism="symbolic_gradient",
    source="a test",
    batching="elementwise",
    examples=(Example("two", {"x": [1.0, 2.0]}),),
)
