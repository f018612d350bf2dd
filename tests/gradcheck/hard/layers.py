"""Layers, integrals and factorizations: terms that cancel in one mode and not in another, and domains of ``sample``."""

import numpy as np
import tensorflow as tf
from mpmath import mp
from scipy import linalg, special

from ops import Input, Output
from tests.gradcheck.hard.exact import Hard, collected
from tests.gradcheck.hard.first_order import first_only
from tests.gradcheck.hard.making import BOTH, WIDE, elementwise, structured, within
from tests.gradcheck.hard.matrices import GENERAL, POSITIVE, nested, of_matrix, random_general, random_positive

NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)


def sharp(x):
    return tf.sigmoid(x / 1e-4)


def exact_dense(x, w, b):
    return [[mp.tanh(mp.fsum(v * w[k][j] for k, v in enumerate(row)) + b[j]) for j in range(len(b))] for row in x]


def gated(x, h):
    """A step of a gated recurrence."""
    z = tf.sigmoid(x + 0.5 * h)
    return (1 - z) * h + z * tf.tanh(x - h)


def gated_reference(x, h):
    z = special.expit(x + 0.5 * h)
    return (1 - z) * h + z * np.tanh(x - h)


def exact_gated(x, h):
    z = 1 / (1 + mp.exp(-x - h / 2))
    return (1 - z) * h + z * mp.tanh(x - h)


def bessel(x):
    """The integral of cos(x sin t) over a half turn, by Gauss's rule."""
    t = tf.constant((NODES + 1) * np.pi / 2, x.dtype)
    return tf.reduce_sum(tf.constant(WEIGHTS / 2, x.dtype) * tf.cos(x[..., None] * tf.sin(t)), axis=-1)


def bessel_reference(x):
    return (WEIGHTS / 2 * np.cos(x[..., None] * np.sin((NODES + 1) * np.pi / 2))).sum(axis=-1)


def exact_bessel(x):
    angles = [mp.sin(mp.mpf(float(t))) for t in (NODES + 1) * np.pi / 2]
    return mp.fsum(mp.mpf(float(w)) * mp.cos(x * s) for w, s in zip(WEIGHTS / 2, angles, strict=True))


def trapezoids(x):
    """The integral up to each node, by the trapezoid rule."""
    return tf.cumsum((x[:, 1:] + x[:, :-1]) / 8, axis=-1)


def of_rows(name, function, reference, y):
    return structured(
        name,
        function,
        reference,
        {"x": [[0.5, -1.25, 2.0, 1.0], [-3.0, 0.25, 1.0, 0.5]]},
        inputs=(Input("x", BOTH, ("N", "M")),),
        outputs=(Output("y", BOTH, y),),
        batching="leading_axis",
    )


def log_determinant(a):
    factor = tf.linalg.cholesky(a + tf.linalg.matrix_transpose(a))
    return 2 * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)))


def lengths_of_r(a):
    """The diagonal of the triangular factor, without its signs."""
    return tf.abs(tf.linalg.diag_part(tf.linalg.qr(a)[1]))


def exact_lengths_of_r(a):
    _, r = mp.qr(mp.matrix(a))
    return [abs(r[i, i]) for i in range(r.cols)]


def smoothed(x):
    """A sharp smooth step: 0 below -1e-3, 1 above 1e-3."""
    t = tf.clip_by_value(x / 2e-3 + 0.5, 0, 1)
    return t * t * (3 - 2 * t)


OPS = collected(
    Hard(
        elementwise("sharp_sigmoid", sharp, lambda x: special.expit(x / 1e-4), {"x": [0.0, 1e-4, -2e-4, 0.5]}),
        lambda x: 1 / (1 + mp.exp(-x / mp.mpf(1e-4))),
    ),
    Hard(
        elementwise(
            "sharp_tanh", lambda x: tf.tanh(x * 3e3), lambda x: np.tanh(x * 3e3), {"x": [0.0, 1e-4, -2e-3]}, dtypes=BOTH
        ),
        lambda x: mp.tanh(x * 3000),
    ),
    Hard(
        elementwise(
            "difference_of_sharp_steps",
            lambda x: tf.sigmoid((x + 1e-3) / 1e-3) - tf.sigmoid((x - 1e-3) / 1e-3),
            lambda x: special.expit((x + 1e-3) / 1e-3) - special.expit((x - 1e-3) / 1e-3),
            {"x": [0.0, 1e-3, -2e-3]},
            slots={"x": {"domain": (-0.01, 0.01)}},
        ),
        lambda x: (
            1 / (1 + mp.exp(-(x + mp.mpf(1e-3)) / mp.mpf(1e-3))) - 1 / (1 + mp.exp(-(x - mp.mpf(1e-3)) / mp.mpf(1e-3)))
        ),
    ),
    Hard(
        elementwise(
            "steep_bump",
            lambda x: tf.exp(-tf.square(x / 1e-4)),
            lambda x: np.exp(-((x / 1e-4) ** 2)),
            {"x": [0.0, 1e-4, -2e-4]},
            slots={"x": {"domain": (-5e-4, 5e-4)}},
        ),
        lambda x: mp.exp(-((x / mp.mpf(1e-4)) ** 2)),
    ),
    Hard(
        structured(
            "dense_layer",
            lambda x, w, b: tf.tanh(tf.matmul(x, w) + b),
            lambda x, w, b: np.tanh(x @ w + b),
            {
                "x": [[0.5, -1.0, 2.0], [1.5, 0.25, -0.5]],
                "w": [[1.0, 0.5], [-0.25, 2.0], [0.75, -1.0]],
                "b": [0.125, -0.5],
            },
            inputs=(Input("x", BOTH, ("N", "M")), Input("w", BOTH, ("M", "K")), Input("b", BOTH, ("K",))),
            outputs=(Output("y", BOTH, ("N", "K")),),
        ),
        exact_dense,
    ),
    Hard(
        elementwise(
            "gated_step",
            gated,
            gated_reference,
            {"x": [0.5, -1.0], "h": [0.25, 0.75]},
            dtypes=BOTH,
            validate=within(x=(-1e3, 1e3), h=(-1e3, 1e3)),
        ),
        exact_gated,
    ),
    Hard(
        elementwise("integral_by_gauss", bessel, bessel_reference, {"x": [0.5, -1.0, 2.5]}, dtypes=WIDE), exact_bessel
    ),
    Hard(
        of_rows(
            "area_by_trapezoids",
            lambda x: trapezoids(x)[:, -1],
            lambda x: ((x[:, 1:] + x[:, :-1]) / 8).sum(axis=-1),
            ("N",),
        ),
        lambda x: [mp.fsum((a + b) / 8 for a, b in zip(row[1:], row[:-1], strict=True)) for row in x],
    ),
    Hard(
        of_matrix(
            "cholesky_of_sampled",
            lambda a: tf.linalg.cholesky((a + tf.linalg.matrix_transpose(a)) / 2),
            lambda a: np.linalg.cholesky((a + np.swapaxes(a, -1, -2)) / 2),
            a=POSITIVE,
            sample=random_positive,
            dtypes=WIDE,
        ),
        lambda a: nested(mp.cholesky((mp.matrix(a) + mp.matrix(a).T) / 2)),
    ),
    Hard(
        of_matrix(
            "log_determinant_of_sampled",
            lambda a: (
                2
                * tf.reduce_sum(tf.math.log(tf.linalg.diag_part(tf.linalg.cholesky(a + tf.linalg.matrix_transpose(a)))))
            ),
            lambda a: np.linalg.slogdet(a + a.T)[1],
            a=POSITIVE,
            y=(),
            sample=random_positive,
            dtypes=WIDE,
        ),
        lambda a: mp.log(mp.det(mp.matrix(a) + mp.matrix(a).T)),
    ),
    Hard(
        of_matrix(
            "lengths_of_qr",
            lengths_of_r,
            lambda a: np.abs(np.diagonal(np.linalg.qr(a)[1])),
            a=GENERAL,
            inputs=(Input("a", WIDE, (3, 3)),),
            outputs=(Output("y", WIDE, (3,)),),
            sample=random_general,
            claim=first_only,
        ),
        exact_lengths_of_r,
    ),
    Hard(
        of_matrix(
            "exponential_of_sampled",
            tf.linalg.expm,
            linalg.expm,
            a=[[0.1, 0.5, -0.25], [0.0, -0.5, 0.3], [0.2, 0.1, 0.4]],
            sample=lambda rng, dtype, attrs: {"a": rng.uniform(-0.7, 0.7, (3, 3)).astype(dtype)},
            dtypes=WIDE,
            modes=("graph", "eager", "v1"),
        ),
        lambda a: nested(mp.expm(mp.matrix(a))),
    ),
    Hard(
        elementwise(
            "sharp_smooth_step",
            smoothed,
            lambda x: np.clip(x / 2e-3 + 0.5, 0, 1) ** 2 * (3 - 2 * np.clip(x / 2e-3 + 0.5, 0, 1)),
            {"x": [0.0, 5e-4, -2e-4]},
            slots={"x": {"domain": (-2e-3, 2e-3), "kinks": (-1e-3, 1e-3)}},
            dtypes=WIDE,
        )
    ),
)
