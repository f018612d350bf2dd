"""Right ops of every size: scans, recurrences, splines, solvers and integrals."""

import itertools
from typing import Any

import numpy as np
import tensorflow as tf
from mpmath import mp

from ops import Input, InvalidInput, Output, custom_gradient
from tests.gradcheck.hard.exact import Hard, collected
from tests.gradcheck.hard.making import BOTH, WIDE, elementwise, structured

LINE = ("N",)
VECTOR = [0.5, -1.25, 2.0, 1.0, -0.75]
UNCOMPILED = ("graph", "eager")


def of_vectors(name, function, reference, at, **changes):
    """Return an op of vectors of one length to a vector of that length."""
    slots: dict[str, Any] = {"inputs": tuple(Input(x, WIDE, LINE) for x in at), "outputs": (Output("y", WIDE, LINE),)}
    return structured(name, function, reference, at, **(slots | changes))


def filtered(x):
    """A recursive filter: y_i = sin(x_i) + y_{i-1}/2."""
    return tf.scan(lambda y, one: one + y / 2, tf.sin(x), initializer=tf.zeros([], x.dtype))


def filtered_vjp(x, dy):
    return tf.cos(x) * tf.scan(lambda z, one: one + z / 2, dy, initializer=tf.zeros([], x.dtype), reverse=True)


def filtered_reference(x):
    y, found = 0.0, list[float]()
    for one in np.sin(x):
        y = one + y / 2
        found.append(y)
    return np.array(found)


def filtered_exact(x):
    return [mp.fsum(mp.sin(one) / mp.mpf(2) ** (i - j) for j, one in enumerate(x[: i + 1])) for i in range(len(x))]


def recurrent(x, u):
    """A recurrent layer with one number of state, whose last state is the result."""
    count = tf.shape(x)[0]

    def body(i, h):
        return i + 1, tf.tanh(x[i] + u * h)

    return tf.while_loop(lambda i, h: i < count, body, (0, 0 * u))[1]


def recurrent_reference(x, u):
    h = np.zeros(())
    for one in x:
        h = np.tanh(one + u * h)
    return h


def recurrent_exact(x, u):
    h = mp.mpf(0)
    for one in x:
        h = mp.tanh(one + u * h)
    return h


def interpolated(x, knots):
    """The piecewise linear function with these values at 0, 1, 2 ..., at x modulo their number."""
    count = tf.shape(knots)[0]
    at = tf.math.floormod(x, tf.cast(count, x.dtype))
    left = tf.minimum(tf.cast(tf.floor(tf.stop_gradient(at)), tf.int32), count - 1)
    part = at - tf.cast(left, x.dtype)
    return (1 - part) * tf.gather(knots, left) + part * tf.gather(knots, tf.math.floormod(left + 1, count))


def interpolated_reference(x, knots):
    ring = np.append(knots, knots[0])
    return np.interp(np.mod(x, len(knots)), np.arange(len(ring)), ring)


def tridiagonal(size, dtype):
    """The second difference plus 2."""
    return 4 * tf.eye(size, dtype=dtype) - tf.linalg.band_part(tf.ones([size, size], dtype), 1, 1)


def solved(x):
    """Solve a tridiagonal system for a cubic spline's second derivatives."""
    matrix = tridiagonal(tf.shape(x)[0], x.dtype)
    return tf.linalg.solve(matrix, tf.sin(x)[:, tf.newaxis])[:, 0]


def solved_vjp(x, dy):
    """The matrix is symmetric, so the transposed solve is the same one."""
    matrix = tridiagonal(tf.shape(x)[0], x.dtype)
    return tf.cos(x) * tf.linalg.solve(matrix, dy[:, tf.newaxis])[:, 0]


def solved_reference(x):
    n = len(x)
    band = np.eye(n, k=1) + np.eye(n, k=-1) + np.eye(n)
    return np.linalg.solve(4 * np.eye(n) - band, np.sin(x))


def integral(x):
    """The trapezoidal rule with the smooth integrand exp(sin x)."""
    y = tf.exp(tf.sin(x))
    return tf.reduce_sum(y[1:] + y[:-1]) / 2


def integral_reference(x):
    y = np.exp(np.sin(x))
    return np.sum(y[1:] + y[:-1]) / 2


def integral_exact(x):
    y = [mp.exp(mp.sin(one)) for one in x]
    return mp.fsum(a + b for a, b in itertools.pairwise(y)) / 2


def fixed_point(x):
    """The solution of z = cos(z)/2 + x, by Newton's method; its gradient is that of the implicit function."""
    z = x
    for _ in range(8):
        z = z - (z - tf.cos(z) / 2 - x) / (1 + tf.sin(z) / 2)
    return z


def fixed_point_vjp_vjp(x, dy, ddx):
    z = fixed_point(x)
    slope = 1 / (1 + tf.sin(z) / 2)
    return -tf.cos(z) / 2 * slope**3 * dy * ddx, slope * ddx


def fixed_point_reference(x):
    z = np.array(x)
    for _ in range(60):
        z = np.cos(z) / 2 + x
    return z


def largest_two(x):
    """The sum of the two largest numbers, or of the only one: kinks everywhere."""
    return tf.reduce_sum(tf.sort(x, direction="DESCENDING")[:2])


def soft(x):
    """A softmax over the last axis, with any axes before it."""
    return tf.exp(x - tf.reduce_logsumexp(x, axis=-1, keepdims=True))


def soft_reference(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def valid_windows(x, w):
    """A correlation without padding, which refuses more weights than numbers."""
    windows = tf.signal.frame(x, tf.shape(w)[0], 1)
    return tf.linalg.matvec(windows, tf.tanh(w))


def fits(inputs, attrs):
    """Refuse an empty window, and one that does not fit."""
    if not 0 < len(inputs["w"]) <= len(inputs["x"]):
        got = f"{len(inputs['w'])} weights"
        raise InvalidInput("w", "the window does not fit", expected=f"1 to {len(inputs['x'])} weights", got=got)


SCALAR = (Output("y", WIDE, ()),)

ITERATIONS = 16


def iterated(x):
    """Iterate z = 3.75 z (1 - z), which is chaotic: each iteration may enlarge the roundings by 3.75."""
    loop = tf.while_loop(
        lambda i, z: i < ITERATIONS,
        lambda i, z: (i + 1, 3.75 * z * (1 - z)),
        (0, x),
        # XLA needs it for the gradient.
        maximum_iterations=ITERATIONS,
    )
    return loop[1]


def iterated_exactly(x):
    for _ in range(ITERATIONS):
        x = 3.75 * x * (1 - x)
    return x


OPS = collected(
    Hard(
        of_vectors("recursive_filter", custom_gradient(filtered, filtered_vjp), filtered_reference, {"x": VECTOR}),
        filtered_exact,
    ),
    Hard(
        structured(
            "recurrent_layer",
            recurrent,
            recurrent_reference,
            {"x": VECTOR, "u": 0.75},
            inputs=(Input("x", WIDE, LINE), Input("u", WIDE, ())),
            outputs=SCALAR,
            modes=("graph", "eager", "v1"),
        ),
        recurrent_exact,
    ),
    Hard(
        structured(
            "linear_spline",
            interpolated,
            interpolated_reference,
            {"x": [0.25, 1.75, -0.5], "knots": VECTOR},
            inputs=(Input("x", WIDE, LINE), Input("knots", WIDE, ("K",))),
            outputs=(Output("y", WIDE, LINE),),
            modes=UNCOMPILED,
        )
    ),
    Hard(of_vectors("spline_solve", custom_gradient(solved, solved_vjp), solved_reference, {"x": VECTOR})),
    Hard(of_vectors("trapezoids", integral, integral_reference, {"x": VECTOR}, outputs=SCALAR), integral_exact),
    Hard(
        elementwise(
            "newton",
            custom_gradient(fixed_point, lambda x, dy: dy / (1 + tf.sin(fixed_point(x)) / 2), fixed_point_vjp_vjp),
            fixed_point_reference,
            {"x": [0.5, -1.0, 2.0]},
        ),
        lambda x: mp.findroot(lambda z: z - mp.cos(z) / 2 - x, x + mp.cos(x) / 2),
    ),
    Hard(
        elementwise(
            "chaotic_map",
            iterated,
            iterated_exactly,
            {"x": [0.3, 0.6]},
            dtypes=BOTH,
            slots={"x": {"domain": (0.05, 0.95)}},
        ),
        iterated_exactly,
    ),
    Hard(of_vectors("largest_two", largest_two, lambda x: np.sort(x)[::-1][:2].sum(), {"x": VECTOR}, outputs=SCALAR)),
    Hard(
        structured(
            "soft_axes",
            soft,
            soft_reference,
            {"x": [VECTOR, VECTOR[::-1]]},
            inputs=(Input("x", WIDE, ("...", "M")),),
            outputs=(Output("y", WIDE, ("...", "M")),),
            batching="leading_axes",
        )
    ),
    Hard(
        structured(
            "valid_windows",
            valid_windows,
            lambda x, w: np.correlate(x, np.tanh(w), mode="valid"),
            {"x": VECTOR, "w": [0.5, -0.25]},
            inputs=(Input("x", WIDE, LINE), Input("w", WIDE, ("K",))),
            outputs=(Output("y", WIDE, ("P",)),),
            validate=fits,
            modes=UNCOMPILED,
        )
    ),
)
