"""y = x, whose values take long to check where x[0] >= 1."""

import time
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from ops import Array, Attrs, Example, Input, Op, Output

LABOUR_S = 0.02


def validate(inputs: Mapping[str, Array], attrs: Attrs) -> None:
    """Use the CPU for a while where the first number is large."""
    del attrs
    until = time.thread_time() + LABOUR_S * bool(inputs["x"].size and inputs["x"].flat[0] >= 1)
    while time.thread_time() < until:
        pass


OP = Op(
    name="laborious",
    summary="x, checked for a while",
    doc=__doc__,
    function=tf.identity,
    reference=np.asarray,
    inputs=(Input("x"),),
    outputs=(Output("y"),),
    validate=validate,
    source="a test",
    batching="elementwise",
    examples=(Example("two", {"x": [0.5, 2.0]}),),
)
