"""Ops of one dtype, or of all four: few digits, a small range, and both at once."""

import math

import numpy as np
import tensorflow as tf
from mpmath import mp
from scipy import special

from ops import FLOATS, Input, Output, custom_gradient
from tests.gradcheck.hard.exact import Hard, collected
from tests.gradcheck.hard.making import SINGLE, WIDE, elementwise, structured, within

HALF = ("float16",)
BRAIN = ("bfloat16",)
FEW = [0.5, -1.25, 2.0, -3.0]
ROWS = [[0.5, -1.25, 2.0], [-3.0, 0.25, 1.0]]


def of_x(name, function, reference, dtypes, **changes):
    return elementwise(name, function, reference, {"x": FEW}, dtypes=dtypes, **changes)


def of_rows(name, function, reference, dtypes, y=("N",)):
    return structured(
        name,
        function,
        reference,
        {"x": ROWS},
        inputs=(Input("x", dtypes, ("N", "M")),),
        outputs=(Output("y", dtypes, y),),
        batching="leading_axis",
    )


def rational_vjp(x, dy):
    q = 1 + x * x
    return (1 - x * x) / (q * q) * dy


def softsign_vjp_vjp(x, dy, ddx):
    q = 1 + tf.abs(x)
    return -2 * tf.sign(x) / (q * q * q) * dy * ddx, ddx / (q * q)


def exact_softmax(x):
    def of_row(row):
        e = [mp.exp(v) for v in row]
        return [v / mp.fsum(e) for v in e]

    return [of_row(row) for row in x]


def normalized(x):
    return x / tf.sqrt(tf.reduce_mean(x * x, axis=-1, keepdims=True) + 1)


def normalized_reference(x):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1)


def tenth(x):
    """Return x times a constant in float32: without float64, it may have the digits of that."""
    return x * tf.cast(tf.constant(0.1), x.dtype)


def short_sine(x):
    """Return a polynomial that has the digits of a sine in float32 alone, for x from -1 to 1."""
    q, y = x * x, tf.zeros_like(x)
    for power in (11, 9, 7, 5, 3, 1):
        y = y * q + (-1) ** (power // 2) / math.factorial(power)
    return x * y


def wide_rows(x):
    """Return sums in float32, whatever the dtype of x."""
    return tf.cast(tf.reduce_sum(tf.sin(tf.cast(x, tf.float32)), axis=-1), x.dtype)


OPS = collected(
    Hard(of_rows("wide_rows_single", wide_rows, lambda x: np.sin(x).sum(axis=-1), SINGLE)),
    Hard(of_rows("wide_rows_unknown", wide_rows, None, SINGLE)),
    Hard(of_x("tenth_single", tenth, lambda x: 0.1 * x, SINGLE), lambda x: mp.mpf(float(np.float32(0.1))) * x),
    Hard(
        elementwise(
            "short_sine_single",
            custom_gradient(short_sine, lambda x, dy: tf.cos(x) * dy),
            np.sin,
            {"x": [0.5, -0.25, 0.125, -0.75]},
            dtypes=SINGLE,
            slots={"x": {"domain": (-1.0, 1.0)}},
            validate=within(x=(-1, 1)),
        ),
        mp.sin,
    ),
    Hard(
        of_rows(
            "sum_of_sines_single",
            lambda x: tf.cumsum(tf.sin(x), axis=-1),
            lambda x: np.cumsum(np.sin(x), -1),
            SINGLE,
            ("N", "M"),
        )
    ),
    Hard(
        of_x(
            "rational_single",
            custom_gradient(lambda x: x / (1 + x * x), rational_vjp),
            lambda x: x / (1 + x * x),
            SINGLE,
            validate=within(x=(-1e4, 1e4)),
        ),
        lambda x: x / (1 + x * x),
    ),
    Hard(
        of_x("gelu_single", tf.nn.gelu, lambda x: x * (1 + special.erf(x / np.sqrt(2))) / 2, SINGLE),
        lambda x: x * (1 + mp.erf(x / mp.sqrt(2))) / 2,
    ),
    Hard(of_x("tanh_single", tf.tanh, np.tanh, SINGLE, slots={"x": {"domain": (-9.0, 9.0)}}), mp.tanh),
    Hard(
        of_x("square_at_5000_single", tf.square, np.square, SINGLE, slots={"x": {"domain": (4000.0, 5000.0)}}),
        lambda x: x * x,
    ),
    Hard(of_x("tanh_half", tf.tanh, np.tanh, HALF), mp.tanh),
    Hard(
        of_x(
            "softsign_half",
            custom_gradient(tf.nn.softsign, lambda x, dy: dy / tf.square(1 + tf.abs(x)), softsign_vjp_vjp),
            lambda x: x / (1 + np.abs(x)),
            HALF,
            slots={"x": {"kinks": (0.0,)}},
            validate=within(x=(-30.0, 30.0)),
        ),
        lambda x: x / (1 + abs(x)),
    ),
    Hard(
        of_x("cubic_half", lambda x: (x - 1) * (x + 1) * x / 8, lambda x: (x**3 - x) / 8, HALF),
        lambda x: (x**3 - x) / 8,
    ),
    Hard(
        of_rows("sum_of_squares_half", lambda x: tf.reduce_sum(x * x, axis=-1), lambda x: (x * x).sum(axis=-1), HALF),
        lambda x: [mp.fsum(v * v for v in row) for row in x],
    ),
    Hard(of_x("sigmoid_brain", tf.sigmoid, special.expit, BRAIN), lambda x: 1 / (1 + mp.exp(-x))),
    Hard(of_x("square_brain", custom_gradient(tf.square, lambda x, dy: 2 * x * dy), np.square, BRAIN), lambda x: x * x),
    Hard(
        of_rows(
            "mean_brain",
            lambda x: tf.reduce_mean(x * tf.sigmoid(x), axis=-1),
            lambda x: (x * special.expit(x)).mean(axis=-1),
            BRAIN,
        ),
        lambda x: [mp.fsum(v / (1 + mp.exp(-v)) for v in row) / len(row) for row in x],
    ),
    Hard(
        of_x(
            "arctan_wide",
            lambda x: tf.math.atan(1e4 * x),
            lambda x: np.arctan(1e4 * x),
            WIDE,
            validate=within(x=(-1e100, 1e100)),
        ),
        lambda x: mp.atan(10000 * x),
    ),
    Hard(
        of_x(
            "seventh_power_wide",
            lambda x: tf.pow(x - 1, tf.constant(7.0, x.dtype)),
            lambda x: (x - 1) ** 7,
            WIDE,
            slots={"x": {"domain": (0.9, 1.1)}},
            validate=within(x=(-1e9, 1e9)),
        ),
        lambda x: (x - 1) ** 7,
    ),
    Hard(
        of_x(
            "swish_in_all",
            lambda x: x * tf.sigmoid(x),
            lambda x: x * special.expit(x),
            FLOATS,
            validate=within(x=(-50.0, 50.0)),
        ),
        lambda x: x / (1 + mp.exp(-x)),
    ),
    Hard(
        of_x("arcsinh_in_all", tf.math.asinh, np.arcsinh, ("float32", "float64"), validate=within(x=(-1e6, 1e6))),
        mp.asinh,
    ),
    Hard(
        of_rows("softmax_in_all", tf.nn.softmax, lambda x: special.softmax(x, axis=-1), FLOATS, ("N", "M")),
        exact_softmax,
    ),
    Hard(
        of_rows("rms_norm_in_all", normalized, normalized_reference, FLOATS, ("N", "M")),
        lambda x: [[v / mp.sqrt(mp.fsum(w * w for w in row) / len(row) + 1) for v in row] for row in x],
    ),
    Hard(
        structured(
            "matrix_product_in_all",
            custom_gradient(
                tf.matmul, lambda x, w, dy: (tf.matmul(dy, w, transpose_b=True), tf.matmul(x, dy, transpose_a=True))
            ),
            lambda x, w: x @ w,
            {"x": ROWS, "w": [[1.0, 0.5], [-0.25, 2.0], [3.0, -1.0]]},
            inputs=(Input("x", FLOATS, ("N", "M")), Input("w", FLOATS, ("M", "K"))),
            outputs=(Output("y", FLOATS, ("N", "K")),),
        ),
        lambda x, w: [[mp.fsum(v * w[k][j] for k, v in enumerate(row)) for j in range(len(w[0]))] for row in x],
    ),
)
