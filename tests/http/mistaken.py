"""C++ ops with mistakes in their registered gradients, each with and without the helper that checks it."""

import numpy as np
import tensorflow as tf

from ops import Example, Input, Op, Output, load, register_gradient

kernels = load(__file__)
X = [0.5, 1.0, 2.0]


@tf.RegisterGradient("MistakenTooFew")
@register_gradient("MistakenTooFewChecked")
def too_few(op, dy):
    """Take one cotangent for an op of two outputs."""
    return dy


@tf.RegisterGradient("MistakenInt")
@register_gradient("MistakenIntChecked")
def an_int(op, dy, _):
    """Return a number instead of a tensor."""
    return 0


def reference(x):
    return x, np.zeros((), np.int32)


def mistaken(name: str) -> Op:
    return Op(
        name=name,
        summary="a C++ op whose gradient has a mistake",
        doc="y = x.",
        function=getattr(kernels, name),
        reference=reference,
        inputs=(Input("x", dtypes=("float32",)),),
        outputs=(Output("y", dtypes=("float32",)), Output("index", dtypes=("int32",), shape=(), differentiable=False)),
        mechanism="register_gradient",
        source="a test",
        examples=(Example("three", {"x": X}),),
    )


NAMES = ("too_few", "not_registered", "int", "too_few_checked", "int_checked")
OPS = {name: mistaken(name) for name in (f"mistaken_{name}" for name in NAMES)}
