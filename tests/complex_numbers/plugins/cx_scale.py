"""w = a z, with a real number for each complex one, and s z with a number attribute."""

import tensorflow as tf

from pullback.ops import Attrs, Example, Input, Op, Output


class Scale(Attrs):
    s: float = 1.0


def forward(a, z, *, s):
    return tf.complex(a * s, tf.zeros_like(a)) * z


def reference(a, z, *, s):
    return a * s * z


OP = Op(
    name="cx_scale",
    summary="s a z",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("a", ("float32", "float64")), Input("z", ("complex64", "complex128"))),
    outputs=(Output("w", ("complex64", "complex128")),),
    source=__file__,
    examples=(Example("two", {"a": [1, 2], "z": [[0.5, -1], [2, 1]]}, {"s": 1.5}),),
    attrs=Scale,
    batching="elementwise",
    holomorphic=True,
)
