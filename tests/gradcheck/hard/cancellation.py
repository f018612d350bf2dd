"""Values that cancel: forward has few digits left, while the gradient has all of them."""

from typing import Any

import numpy as np
import tensorflow as tf
from mpmath import mp

from ops import Input, InvalidInput, Output, custom_gradient
from tests.gradcheck.hard.exact import Hard, collected
from tests.gradcheck.hard.making import BOTH, SINGLE, WIDE, elementwise, structured, within

ROOTS = np.arange(1.0, 9.0)
COEFFICIENTS = np.poly(ROOTS)
TERMS = 60


def expanded_polynomial(x):
    """Π (x - k) from its coefficients, by Horner's rule."""
    y = tf.zeros_like(x)
    for coefficient in COEFFICIENTS:
        y = y * x + coefficient
    return y


def product_rule(x, dy):
    """Σ Π (x - k), where each term leaves one factor out: without cancellation at the roots."""
    factors = [x - root for root in ROOTS]
    terms = [tf.reduce_prod(tf.stack(factors[:i] + factors[i + 1 :]), axis=0) for i in range(len(factors))]
    return tf.reduce_sum(tf.stack(terms), axis=0) * dy


def centred(x):
    return x - tf.reduce_mean(x, axis=-1, keepdims=True)


def naive_variance(x):
    return tf.reduce_mean(x * x, axis=-1) - tf.reduce_mean(x, axis=-1) ** 2


def variance_vjp(x, dy):
    return 2 * centred(x) * dy[..., None] / tf.cast(tf.shape(x)[-1], x.dtype)


def variance_vjp_vjp(x, dy, ddx):
    count = tf.cast(tf.shape(x)[-1], x.dtype)
    return 2 * centred(ddx) * dy[..., None] / count, 2 * tf.reduce_sum(centred(x) * ddx, axis=-1) / count


def naive_root(b, c):
    """The root of y² + by - c = 0 that is near 0."""
    return (tf.sqrt(b * b + 4 * c) - b) / 2


def root_vjp(b, c, dy):
    r = tf.sqrt(b * b + 4 * c)
    return -2 * c / (b + r) / r * dy, dy / r


def naive_series(x):
    """e^(-x) by its series, whose terms alternate."""
    y = term = tf.ones_like(x)
    for n in range(1, TERMS):
        term = -term * x / n
        y += term
    return y


def heron(a, b, c):
    """The area of a triangle from its sides."""
    s = (a + b + c) / 2
    return tf.sqrt(s * (s - a) * (s - b) * (s - c))


def heron_reference(a, b, c):
    s = (a + b + c) / 2
    return np.sqrt(s * (s - a) * (s - b) * (s - c))


def exact_heron(a, b, c):
    s = (a + b + c) / 2
    return mp.sqrt(s * (s - a) * (s - b) * (s - c))


def require_triangle(inputs, attrs):
    a, b, c = (np.asarray(inputs[name], np.float64) for name in "abc")
    if not ((a + b > c) & (b + c > a) & (c + a > b)).all():
        raise InvalidInput("c", "not a triangle", expected="sides of a triangle", got="a longer side")


def needles(rng, dtype, attrs):
    """Draw triangles whose longest side is nearly the sum of the others."""
    a, b = rng.uniform(1, 2, (2, 16))
    c = (a + b) * (1 - 10.0 ** rng.uniform(-4, -1, 16))
    return {"a": a.astype(dtype), "b": b.astype(dtype), "c": c.astype(dtype)}


FAR = [[100.5, 99.25, 100.0], [99.0, 101.0, 100.75]]
ROWS: dict[str, Any] = {
    "inputs": (Input("x", WIDE, ("N", "M"), domain=(99.0, 101.0)),),
    "outputs": (Output("y", WIDE, ("N",)),),
}


def exact_variance(x):
    def of_row(row):
        mean = mp.fsum(row) / len(row)
        return mp.fsum((v - mean) ** 2 for v in row) / len(row)

    return [of_row(row) for row in x]


OPS = collected(
    Hard(
        elementwise(
            "expanded_polynomial",
            custom_gradient(expanded_polynomial, product_rule),
            lambda x: np.prod([x - root for root in ROOTS], axis=0),
            {"x": [1.0, 4.5, 8.0]},
            slots={"x": {"domain": (0.5, 8.5)}},
        ),
        lambda x: mp.fprod(x - int(k) for k in ROOTS),
    ),
    Hard(
        elementwise(
            "small_polynomial",
            lambda x: ((x - 6) * x + 11) * x - 6,
            lambda x: (x - 1) * (x - 2) * (x - 3),
            {"x": [1.0, 2.0, 2.9]},
            slots={"x": {"domain": (0.5, 3.5)}},
        ),
        lambda x: (x - 1) * (x - 2) * (x - 3),
    ),
    Hard(
        elementwise(
            "one_plus_minus_one",
            lambda x: (1 + x) - 1,
            lambda x: (1 + x) - 1,
            {"x": [1e-9, -3e-7, 1e-3]},
            slots={"x": {"domain": (-1e-6, 1e-6)}},
        ),
        lambda x: x,
    ),
    Hard(
        elementwise(
            "square_minus_one",
            lambda x: (1 + x) * (1 + x) - 1,
            lambda x: (2 + x) * x,
            {"x": [1e-12, -1e-9, 3e-8]},
            slots={"x": {"domain": (-1e-8, 1e-8)}},
        ),
        lambda x: (2 + x) * x,
    ),
    Hard(
        elementwise(
            "naive_log1p",
            custom_gradient(lambda x: tf.math.log(1 + x), lambda x, dy: dy / (1 + x)),
            np.log1p,
            {"x": [1e-10, 1e-6, 1e-2]},
            slots={"x": {"domain": (1e-8, 1e-4), "poles": (-1.0,)}},
        ),
        mp.log1p,
    ),
    Hard(
        elementwise(
            "naive_log1p_single",
            lambda x: tf.math.log(1 + x),
            np.log1p,
            {"x": [1e-3, 0.25, 2.0]},
            dtypes=SINGLE,
            slots={"x": {"domain": (1e-3, 1e-1), "poles": (-1.0,)}},
        ),
        mp.log1p,
    ),
    Hard(
        structured(
            "naive_variance",
            custom_gradient(naive_variance, variance_vjp, variance_vjp_vjp),
            lambda x: np.var(x, axis=-1),
            {"x": FAR},
            batching="leading_axis",
            **ROWS,
        ),
        exact_variance,
    ),
    Hard(
        structured(
            "naive_variance_by_autodiff",
            naive_variance,
            lambda x: np.var(x, axis=-1),
            {"x": FAR},
            batching="leading_axis",
            **ROWS,
        ),
        exact_variance,
    ),
    Hard(
        elementwise(
            "difference_of_squares",
            lambda x, y: x * x - y * y,
            lambda x, y: (x - y) * (x + y),
            {"x": [100.0, 100.5], "y": [100.0, 100.25]},
            dtypes=BOTH,
            slots={"x": {"domain": (100.0, 101.0)}, "y": {"domain": (100.0, 101.0)}},
            outputs=("z",),
        ),
        lambda x, y: x * x - y * y,
    ),
    Hard(
        structured(
            "naive_logsumexp",
            lambda x: tf.math.log(tf.reduce_sum(tf.exp(x), axis=-1)),
            lambda x: np.logaddexp.reduce(x, axis=-1),
            {"x": [[-30.0, 0.0, 30.0], [25.0, 25.0, 24.0]]},
            inputs=(Input("x", BOTH, ("N", "M"), domain=(-30.0, 30.0)),),
            outputs=(Output("y", BOTH, ("N",)),),
            batching="leading_axis",
        ),
        lambda x: [mp.log(mp.fsum(map(mp.exp, row))) for row in x],
    ),
    Hard(
        elementwise(
            "naive_cosine_gap",
            lambda x: (1 - tf.cos(x)) / (x * x),
            lambda x: 2 * (np.sin(x / 2) / x) ** 2,
            {"x": [1.0, 3.0, 5.0]},
            slots={"x": {"domain": (1.0, 5.0)}},
            validate=within(x=(0.5, 6.0)),
        ),
        lambda x: (1 - mp.cos(x)) / (x * x),
    ),
    Hard(
        elementwise(
            "naive_root",
            custom_gradient(naive_root, root_vjp),
            lambda b, c: 2 * c / (b + np.sqrt(b * b + 4 * c)),
            {"b": [50.0, 100.0, 1e5], "c": [1.0, 0.5, 0.25]},
            slots={"b": {"domain": (50.0, 1e4)}, "c": {"domain": (0.1, 1.0)}},
            validate=within(b=(0.0, 1e9), c=(1e-9, 1e9)),
        ),
        lambda b, c: (mp.sqrt(b * b + 4 * c) - b) / 2,
    ),
    Hard(
        elementwise(
            "norm_difference",
            custom_gradient(
                lambda x: tf.sqrt(x * x + 1) - x, lambda x, dy: -dy / (tf.sqrt(x * x + 1) * (tf.sqrt(x * x + 1) + x))
            ),
            lambda x: 1 / (np.sqrt(x * x + 1) + x),
            {"x": [1.0, 10.0, 1000.0]},
            slots={"x": {"domain": (10.0, 1000.0)}},
            validate=within(x=(0.0, 1e9)),
        ),
        lambda x: mp.sqrt(x * x + 1) - x,
    ),
    Hard(
        elementwise(
            "sum_without_one",
            lambda x, y: (x + y) - x,
            lambda x, y: y + 0 * x,
            {"x": [1e8, 3e8], "y": [0.5, -0.25]},
            slots={"x": {"domain": (1e8, 1e9)}, "y": {"domain": (-1.0, 1.0)}},
            outputs=("z",),
        ),
        lambda x, y: y + 0 * x,
    ),
    Hard(
        elementwise(
            "heron",
            heron,
            heron_reference,
            {"a": [3.0, 1.0], "b": [4.0, 1.0], "c": [5.0, 1.999]},
            validate=require_triangle,
            sample=needles,
            outputs=("area",),
        ),
        exact_heron,
    ),
    Hard(
        elementwise(
            "naive_series",
            custom_gradient(naive_series, lambda x, dy: -tf.exp(-x) * dy),
            lambda x: np.exp(-x),
            {"x": [0.0, 1.0, 12.0]},
            slots={"x": {"domain": (0.0, 12.0)}},
        ),
        lambda x: mp.exp(-x),
    ),
)
