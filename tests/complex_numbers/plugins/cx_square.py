"""w = z²: dz = conj(2z) dw; written as a custom gradient at both orders."""

import tensorflow as tf

from pullback.ops import Example, Input, Op, Output, custom_gradient


def forward(z):
    return z * z


def vjp(z, dw):
    return 2 * tf.math.conj(z) * dw


def vjp_vjp(z, dw, ddz):
    return 2 * dw * tf.math.conj(ddz), 2 * z * ddz


def reference(z):
    return z**2


OP = Op(
    name="cx_square",
    summary="z²",
    doc=__doc__,
    function=custom_gradient(forward, vjp, vjp_vjp),
    reference=reference,
    inputs=(Input("z", ("complex64", "complex128")),),
    outputs=(Output("w", ("complex64", "complex128")),),
    source=__file__,
    examples=(Example("two", {"z": [[1, 2], [0.5, -1]]}),),
    batching="elementwise",
    holomorphic=True,
)
