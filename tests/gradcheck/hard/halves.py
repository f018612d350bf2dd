"""Right ops in all dtypes that add up, normalise and saturate in half precision."""

import numpy as np
import tensorflow as tf
from mpmath import mp
from scipy import special

from ops import FLOATS, Input, Output, custom_gradient
from tests.gradcheck.hard.exact import Hard, collected
from tests.gradcheck.hard.making import elementwise, structured, within

ROWS = [[0.5, -1.25, 2.0, 0.75, -0.125], [-3.0, 0.25, 1.0, -2.0, 1.5]]


def of_rows(name, function, reference, y=("N", "M"), **slot):
    return structured(
        name,
        function,
        reference,
        {"x": ROWS},
        inputs=(Input("x", FLOATS, ("N", "M"), **slot),),
        outputs=(Output("y", FLOATS, y),),
        batching="leading_axis",
    )


def of_x(name, function, reference, **slot):
    at, checked = {"x": [0.5, -1.25, 2.0]}, within(x=(-20.0, 20.0))
    return elementwise(name, function, reference, at, dtypes=FLOATS, slots={"x": slot}, validate=checked)


def layer_norm(x):
    centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
    return centred * tf.math.rsqrt(tf.reduce_mean(centred * centred, axis=-1, keepdims=True) + 0.125)


def layer_norm_reference(x):
    c = x - x.mean(axis=-1, keepdims=True)
    return c / np.sqrt((c * c).mean(axis=-1, keepdims=True) + 0.125)


def exact_layer_norm(x):
    def of_row(row):
        mean = mp.fsum(row) / len(row)
        c = [v - mean for v in row]
        s = mp.sqrt(mp.fsum(v * v for v in c) / len(row) + mp.mpf(0.125))
        return [v / s for v in c]

    return [of_row(row) for row in x]


def log1pexp(x):
    """TensorFlow's softplus in bfloat16 is eˣ up to -2.85, and so 7 units in the last place off: that is blamed."""
    return tf.maximum(x, 0) + tf.math.log1p(tf.exp(-tf.abs(x)))


def log1pexp_vjp(x, dy):
    return (1 - 1 / (1 + tf.exp(x))) * dy


def tanh_vjp(x, dy):
    y = tf.tanh(x)
    return (1 - y * y) * dy


def gelu(x):
    return 0.5 * x * (1 + tf.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


def attention(x):
    weights = tf.nn.softmax(x[:, :, None] * x[:, None, :] / 2)
    return tf.reduce_sum(weights * x[:, None, :], axis=-1)


def attention_reference(x):
    return (special.softmax(x[:, :, None] * x[:, None, :] / 2, axis=-1) * x[:, None, :]).sum(axis=-1)


def exact_attention(x):
    def of(row, q):
        e = [mp.exp(q * k / 2) for k in row]
        return mp.fsum(a * v for a, v in zip(e, row, strict=True)) / mp.fsum(e)

    return [[of(row, q) for q in row] for row in x]


OPS = collected(
    Hard(of_rows("layer_norm_in_all", layer_norm, layer_norm_reference), exact_layer_norm),
    Hard(
        of_x(
            "log1pexp_in_all", custom_gradient(log1pexp, log1pexp_vjp), lambda x: np.logaddexp(0, x), domain=(-8.0, 8.0)
        ),
        lambda x: mp.log1p(mp.exp(x)),
    ),
    Hard(of_x("tanh_far_in_all", custom_gradient(tf.tanh, tanh_vjp), np.tanh, domain=(-9.0, 9.0)), mp.tanh),
    Hard(
        of_rows("log_softmax_in_all", tf.nn.log_softmax, lambda x: special.log_softmax(x, axis=-1), domain=(-6.0, 6.0)),
        lambda x: [[v - mp.log(mp.fsum(mp.exp(w) for w in row)) for v in row] for row in x],
    ),
    Hard(
        of_rows("cumulative_sum_in_all", lambda x: tf.cumsum(x, axis=-1), lambda x: np.cumsum(x, axis=-1)),
        lambda x: [[mp.fsum(row[: i + 1]) for i in range(len(row))] for row in x],
    ),
    Hard(
        of_rows("mean_in_all", lambda x: tf.reduce_mean(x, axis=-1), lambda x: x.mean(axis=-1), ("N",)),
        lambda x: [mp.fsum(row) / len(row) for row in x],
    ),
    Hard(
        of_rows("variance_in_all", lambda x: tf.math.reduce_variance(x, axis=-1), lambda x: x.var(axis=-1), ("N",)),
        lambda x: [mp.fsum((v - mp.fsum(row) / len(row)) ** 2 for v in row) / len(row) for row in x],
    ),
    Hard(
        of_x("gelu_in_all", gelu, lambda x: 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))),
        lambda x: x / 2 * (1 + mp.tanh(mp.mpf(0.7978845608028654) * (x + mp.mpf(0.044715) * x**3))),
    ),
    Hard(of_rows("attention_in_all", attention, attention_reference), exact_attention),
    Hard(
        of_x("shifted_square_in_all", lambda x: tf.square(x - 1) - 1, lambda x: (x - 1) ** 2 - 1),
        lambda x: (x - 1) ** 2 - 1,
    ),
)
