"""w = r exp(i t): complex numbers of real ones."""

import numpy as np
import tensorflow as tf

from pullback.ops import Example, Input, Op, Output


def forward(r, t):
    return tf.complex(r * tf.cos(t), r * tf.sin(t))


def reference(r, t):
    return r * np.exp(1j * t)


REAL = ("float32", "float64")
OP = Op(
    name="cx_phase",
    summary="r exp(i t)",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("r", REAL), Input("t", REAL)),
    outputs=(Output("w", ("complex64", "complex128")),),
    source=__file__,
    examples=(Example("two", {"r": [1, 2], "t": [0.5, -1]}),),
    batching="elementwise",
)
