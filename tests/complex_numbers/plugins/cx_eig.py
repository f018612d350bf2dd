"""w: the eigenvalues of a real matrix with complex ones, sorted; their sum of cubes has no order: p = Σ λ³ / 3."""

import numpy as np
import tensorflow as tf

from pullback.ops import Example, Input, Op, Output


def forward(x):
    values = tf.linalg.eigvals(tf.complex(x, tf.zeros_like(x)))
    return tf.reduce_sum(values * values * values) / 3


def reference(x):
    return np.sum(np.linalg.eigvals(x).astype(complex) ** 3) / 3


OP = Op(
    name="cx_eig",
    summary="Σ λ³ / 3",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x", ("float32", "float64"), ("N", "N")),),
    outputs=(Output("w", ("complex64", "complex128"), ()),),
    source=__file__,
    examples=(Example("one", {"x": [[0, 1, 0.5], [-2, 0.25, 0], [0.1, 0, 3]]}),),
    modes=("graph", "eager", "v1"),
)
