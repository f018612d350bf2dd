"""Ops of the numbers of a row, which depend on no other row."""

import math

import numpy as np
import tensorflow as tf

from ops import UNCOMPILED, Array, Attrs, Input, Tensor, custom_gradient
from tests.gradcheck.wrong.making import BOTH, MATRIX, WIDE, rows
from tests.rows.making import apart, rows_of


def row_compensated(x: Tensor) -> Tensor:
    """Σ x³ of each row with its rounding errors carried along, in float64 alone."""
    total = carried = tf.zeros_like(x[:, 0])
    for k in range(5):
        term = x[:, k] * x[:, k] * x[:, k] - carried
        following = total + term
        carried = (following - total) - term
        total = following
    return total


def compensated_vjp(x: Tensor, dy: Tensor) -> Tensor:
    return 3 * x * x * tf.expand_dims(dy, -1)


def compensated_reference(x: Array) -> Array:
    return (x**3).sum(-1)


def row_cumprod(x: Tensor) -> Tensor:
    """The product of each number of a row and all after it."""
    return tf.math.cumprod(x, axis=-1, reverse=True)


def cumprod_reference(x: Array) -> Array:
    return np.cumprod(x[:, ::-1], axis=-1)[:, ::-1]


def row_cumsum(x: Tensor) -> Tensor:
    """The sum of each number of a row and all before it."""
    return tf.cumsum(tf.sin(x), axis=-1)


def cumsum_reference(x: Array) -> Array:
    return np.cumsum(np.sin(x), axis=-1)


def row_dirichlet(x: Tensor) -> Tensor:
    """Σ log Γ(x) - log Γ(Σ x) of each row, whose kernels have many branches."""
    return tf.reduce_sum(tf.math.lgamma(x), axis=-1) - tf.math.lgamma(tf.reduce_sum(x, axis=-1))


def dirichlet_reference(x: Array) -> Array:
    lgamma = np.vectorize(math.lgamma)
    return lgamma(x).sum(-1) - lgamma(x.sum(-1))


def row_gelu(x: Tensor) -> Tensor:
    """The mean of x Φ(x) over each row, in float32 alone."""
    return tf.reduce_mean(x * (1 + tf.math.erf(x * 0.5**0.5)) / 2, axis=-1)


def gelu_reference(x: Array) -> Array:
    return (x * (1 + np.vectorize(math.erf)(x * 0.5**0.5)) / 2).mean(-1)


def row_kepler(e: Tensor, m: Tensor) -> Tensor:
    """The solution E of E - e sin E = M by eight steps of Newton's, with the gradient of the implicit function."""
    y = m
    for _ in range(8):
        y = y - (y - e * tf.sin(y) - m) / (1 - e * tf.cos(y))
    return y


def kepler_vjp(e: Tensor, m: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    y = row_kepler(e, m)
    dm = dy / (1 - e * tf.cos(y))
    return tf.sin(y) * dm, dm


def kepler_reference(e: Array, m: Array) -> Array:
    y = m
    for _ in range(200):
        y = m + e * np.sin(y)
    return y


def row_layer_norm(x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    """Scale each row to mean 0 and variance 1, multiply it by its gain, and add its shift."""
    centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
    return centred / tf.sqrt(variance + 0.125) * gain + shift


def layer_norm_reference(x: Array, gain: Array, shift: Array) -> Array:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 0.125) * gain + shift


def row_log_softmax(x: Tensor) -> Tensor:
    """The logarithm of the softmax of each row, with a gradient written by hand."""
    return tf.nn.log_softmax(x)


def log_softmax_vjp(x: Tensor, dy: Tensor) -> Tensor:
    return dy - tf.nn.softmax(x) * tf.reduce_sum(dy, axis=-1, keepdims=True)


def log_softmax_reference(x: Array) -> Array:
    return x - np.logaddexp.reduce(x, axis=-1, keepdims=True)


def row_logsumexp(x: Tensor) -> Tensor:
    """log Σ exp(x) of each row."""
    return tf.math.reduce_logsumexp(x, axis=-1)


def logsumexp_reference(x: Array) -> Array:
    return np.logaddexp.reduce(x, axis=-1)


def of_row(x: Tensor) -> Tensor:
    return x / tf.sqrt(1 + tf.reduce_sum(x * x))


def row_map(x: Tensor) -> Tensor:
    """Each row divided by its norm: a function of one row, which TensorFlow maps over the rows in a loop."""
    return tf.map_fn(of_row, x)


def map_reference(x: Array) -> Array:
    return x / np.sqrt(1 + (x * x).sum(-1, keepdims=True))


def row_median(x: Tensor) -> Tensor:
    """The middle number of the five of each row, with a gradient that passes to it alone."""
    return tf.sort(x, axis=-1)[:, 2]


def median_vjp(x: Tensor, dy: Tensor) -> Tensor:
    middle = tf.equal(x, tf.expand_dims(row_median(x), -1))
    share = tf.cast(middle, x.dtype) / tf.reduce_sum(tf.cast(middle, x.dtype), axis=-1, keepdims=True)
    return share * tf.expand_dims(dy, -1)


def median_reference(x: Array) -> Array:
    return np.median(x, axis=-1)


def median_sample(rng: np.random.Generator, dtype: str, attrs: Attrs) -> dict[str, Array]:
    """Draw five numbers that are apart for each of four rows."""
    return {"x": rng.permuted(np.broadcast_to(np.arange(5) - 2 + 0.25, (4, 5)), axis=-1).astype(dtype)}


def row_norm(x: Tensor) -> Tensor:
    """y = √(1 + Σx²) of each row, with both orders of its gradient written by hand."""
    return tf.sqrt(1 + tf.reduce_sum(x * x, axis=-1))


def norm_vjp(x: Tensor, dy: Tensor) -> Tensor:
    return x * tf.expand_dims(dy / row_norm(x), -1)


def norm_vjp_vjp(x: Tensor, dy: Tensor, ddx: Tensor) -> tuple[Tensor, Tensor]:
    y = row_norm(x)
    along = tf.reduce_sum(x * ddx, axis=-1) / y
    return tf.expand_dims(dy / y, -1) * (ddx - x * tf.expand_dims(along / y, -1)), along


def norm_reference(x: Array) -> Array:
    return np.sqrt(1 + (x * x).sum(-1))


def row_of_one(x: Tensor) -> Tensor:
    """x exp(-x²), where a row is one number."""
    return x * tf.exp(-x * x)


def of_one_reference(x: Array) -> Array:
    return x * np.exp(-x * x)


def row_polynomial(c: Tensor, x: Tensor) -> Tensor:
    """A polynomial with coefficients of each row, c₀ + c₁x + c₂x² + c₃x³, at a number of each row."""
    y = c[:, 3]
    for k in (2, 1, 0):
        y = y * x + c[:, k]
    return y


def polynomial_reference(c: Array, x: Array) -> Array:
    return (c * x[:, None] ** np.arange(4)).sum(-1)


NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)


def row_quadrature(a: Tensor, b: Tensor) -> Tensor:
    """The integral of exp(-a t²) cos(t) from 0 to b for the a and b of each row, by 12 Gauss-Legendre nodes."""
    t = tf.expand_dims(b / 2, -1) * tf.constant(1 + NODES, b.dtype)
    values = tf.exp(-tf.expand_dims(a, -1) * t * t) * tf.cos(t)
    return b / 2 * tf.linalg.matvec(values, tf.constant(WEIGHTS, b.dtype))


def quadrature_reference(a: Array, b: Array) -> Array:
    t = b[:, None] / 2 * (1 + NODES)
    return b / 2 * (np.exp(-a[:, None] * t * t) * np.cos(t) * WEIGHTS).sum(-1)


def row_recurrence(x: Tensor, r: Tensor) -> Tensor:
    """The logistic map of each row, five times: x r (1 - x), with the rates of the row."""
    for step in range(5):
        x = x * r[:, step] * (1 - x)
    return x


def recurrence_reference(x: Array, r: Array) -> Array:
    for rate in r.T:
        x = x * rate * (1 - x)
    return x


def row_softmax(x: Tensor) -> Tensor:
    """The softmax of each row."""
    return tf.nn.softmax(x)


def softmax_reference(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def row_sort(x: Tensor) -> Tensor:
    """The numbers of each row in ascending order."""
    return tf.sort(x, axis=-1)


def sort_reference(x: Array) -> Array:
    return np.sort(x, axis=-1)


def row_spline(knots: Tensor, t: Tensor) -> Tensor:
    """The cubic spline of Catmull and Rom through the knots of each row, at one place of each row."""
    cell = tf.floor(t)
    s, first = t - cell, tf.clip_by_value(tf.cast(cell, tf.int32), 0, 2)
    p = [tf.gather(knots, first + k, batch_dims=1, axis=1) for k in range(4)]
    slope = p[2] - p[0]
    curve = 2 * p[0] - 5 * p[1] + 4 * p[2] - p[3]
    return p[1] + s / 2 * (slope + s * (curve + s * (3 * (p[1] - p[2]) + p[3] - p[0])))


def spline_reference(knots: Array, t: Array) -> Array:
    first = np.floor(t).astype(int)
    p = [knots[np.arange(len(t)), first + k] for k in range(4)]
    s = t - first
    even = (2 * p[0] - 5 * p[1] + 4 * p[2] - p[3]) * s**2
    return p[1] + ((p[2] - p[0]) * s + even + (3 * p[1] - 3 * p[2] + p[3] - p[0]) * s**3) / 2


T = Input("t", BOTH, ("N",), domain=(0.0, 2.9375), kinks=(0.0, 1.0, 2.0))


def row_top_2(x: Tensor) -> Tensor:
    """The two largest numbers of each row."""
    return tf.math.top_k(x, k=2)[0]


def top_2_reference(x: Array) -> Array:
    return np.sort(x, axis=-1)[:, :-3:-1]


TURNS = 6


def row_while(x: Tensor) -> Tensor:
    """A loop of TensorFlow with a fixed number of turns: x becomes sin(x) + x/2, six times."""

    def body(turn: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return turn + 1, tf.sin(y) + y / 2

    def goes_on(turn: Tensor, y: Tensor) -> Tensor:
        return turn < TURNS

    return tf.while_loop(goes_on, body, (tf.constant(0), x), maximum_iterations=TURNS)[1]


def while_reference(x: Array) -> Array:
    for _ in range(TURNS):
        x = np.sin(x) + x / 2
    return x


OPS = (
    rows(
        custom_gradient(row_compensated, compensated_vjp),
        compensated_reference,
        inputs=[Input("x", WIDE, ("N", 5))],
        out=("N",),
    ),
    rows_of(row_cumprod, cumprod_reference, slot={"domain": (0.5, 2.0)}),
    rows_of(row_cumsum, cumsum_reference),
    rows_of(row_dirichlet, dirichlet_reference, out=("N",), slot={"domain": (0.5, 4.0), "poles": (0.0,)}),
    rows(row_gelu, gelu_reference, dtypes=("float32",), out=("N",)),
    rows_of(
        custom_gradient(row_kepler, kepler_vjp),
        kepler_reference,
        inputs=[Input("e", BOTH, ("N",), domain=(0.0, 0.5)), Input("m", BOTH, ("N",))],
        out=("N",),
    ),
    rows_of(
        row_layer_norm,
        layer_norm_reference,
        inputs=[Input(name, BOTH, MATRIX) for name in ("x", "gain", "shift")],
    ),
    rows_of(custom_gradient(row_log_softmax, log_softmax_vjp), log_softmax_reference),
    rows_of(row_logsumexp, logsumexp_reference, out=("N",)),
    rows_of(row_map, map_reference, modes=UNCOMPILED),
    rows_of(
        custom_gradient(row_median, median_vjp),
        median_reference,
        inputs=[Input("x", BOTH, ("N", 5))],
        out=("N",),
        sample=median_sample,
    ),
    rows_of(custom_gradient(row_norm, norm_vjp, norm_vjp_vjp), norm_reference, out=("N",)),
    rows_of(row_of_one, of_one_reference, inputs=[Input("x", BOTH, ("N",))], out=("N",)),
    rows_of(
        row_polynomial,
        polynomial_reference,
        inputs=[Input("c", BOTH, ("N", 4)), Input("x", BOTH, ("N",))],
        out=("N",),
    ),
    rows_of(
        row_quadrature,
        quadrature_reference,
        inputs=[Input("a", BOTH, ("N",), domain=(0.25, 1.0)), Input("b", BOTH, ("N",))],
        out=("N",),
    ),
    rows_of(
        row_recurrence,
        recurrence_reference,
        inputs=[Input("x", BOTH, ("N",), domain=(0.1, 0.9)), Input("r", BOTH, ("N", 5), domain=(1.0, 3.5))],
        out=("N",),
    ),
    rows_of(row_softmax, softmax_reference),
    rows_of(row_sort, sort_reference, sample=apart),
    rows_of(
        row_spline,
        spline_reference,
        inputs=[Input("knots", BOTH, ("N", 6)), T],
        out=("N",),
    ),
    rows_of(row_top_2, top_2_reference, out=("N", 2), sample=apart),
    rows_of(row_while, while_reference),
)
