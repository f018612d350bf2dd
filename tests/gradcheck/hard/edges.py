"""Right ops near poles, far outside of the default domain, and with NaN that forward leaves out."""

import numpy as np
import tensorflow as tf
from mpmath import mp
from scipy import special

from ops import Input, Output, custom_gradient
from tests.gradcheck.hard.exact import Hard, collected
from tests.gradcheck.hard.making import BOTH, WIDE, elementwise, structured


def gelu(x):
    """1 + erf is 0 from -8.3 on, while its slope is not."""
    return 0.5 * x * (1 + tf.math.erf(x / tf.sqrt(tf.constant(2, x.dtype))))


def gelu_vjp(x, dy):
    root = tf.sqrt(tf.constant(2, x.dtype))
    density = tf.exp(-x * x / 2) / tf.sqrt(tf.constant(2 * np.pi, x.dtype))
    return (0.5 * (1 + tf.math.erf(x / root)) + x * density) * dy


def without_nan(x):
    return tf.where(tf.math.is_nan(x), tf.zeros_like(x), x)


def energies(x):
    """TensorFlow's reduce_logsumexp tests for infinity."""
    return tf.reduce_logsumexp(-tf.square(x), axis=-1)


def energies_reference(x):
    with np.errstate(divide="ignore"):
        return special.logsumexp(-(x**2), axis=-1) if x.shape[-1] else np.full(x.shape[:-1], -np.inf)


def concentration(x, k):
    """The logarithm of a von Mises density, but for a constant."""
    return k * (tf.cos(x) - 1) - tf.math.log(tf.math.bessel_i0e(k))


def concentration_vjp(x, k, dy):
    """Right where k > 0."""
    mean = tf.math.bessel_i1e(k) / tf.math.bessel_i0e(k)
    return -k * tf.sin(x) * dy, (tf.cos(x) - mean) * dy


def entr(x):
    """``==`` compares elements in every mode."""
    is_zero = x == 0
    return tf.where(is_zero, tf.zeros_like(x), -x * tf.math.log(tf.where(is_zero, tf.ones_like(x), x)))


OPS = collected(
    Hard(
        elementwise(
            "entr_by_equality",
            custom_gradient(entr, lambda x, dy: -(tf.math.log(x) + 1) * dy),
            special.entr,
            {"x": [0.5, 0.25, 0.0]},
            slots={"x": {"domain": (0.0, 9.0), "poles": (0.0,)}},
            dtypes=BOTH,
        )
    ),
    Hard(
        structured(
            "energies",
            energies,
            energies_reference,
            {"x": [[0.5, -0.25], [0.0, 0.9]]},
            inputs=(Input("x", WIDE, ("N", "M")),),
            outputs=(Output("y", WIDE, ("N",)),),
            batching="leading_axis",
        )
    ),
    Hard(
        elementwise(
            "concentration",
            custom_gradient(concentration, concentration_vjp),
            lambda x, k: k * (np.cos(x) - 1) - np.log(special.i0e(k)),
            {"x": [0.5, -0.25], "k": [1.0, 9.0]},
            slots={"k": {"domain": (0.1, 50.0)}},
        )
    ),
    Hard(
        elementwise(
            "gelu_erf", custom_gradient(gelu, gelu_vjp), lambda x: x * special.ndtr(x), {"x": [-1.0, 0.5]}, dtypes=BOTH
        ),
        lambda x: x * mp.ncdf(x),
    ),
    Hard(
        elementwise(
            "logit_at_poles",
            custom_gradient(lambda x: tf.math.log(x) - tf.math.log1p(-x), lambda x, dy: dy / (x * (1 - x))),
            special.logit,
            {"x": [0.25, 0.999]},
            slots={"x": {"domain": (0.0, 1.0), "poles": (0.0, 1.0)}},
            dtypes=BOTH,
        )
    ),
    Hard(
        structured(
            "arcs",
            custom_gradient(
                lambda x: tf.reduce_sum(tf.sqrt((1 - x) * (1 + x)), axis=-1),
                lambda x, dy: -x / tf.sqrt((1 - x) * (1 + x)) * dy[:, None],
            ),
            lambda x: np.sqrt((1 - x) * (1 + x)).sum(axis=-1),
            {"x": [[0.5, -0.25], [0.0, 0.9]]},
            inputs=(Input("x", WIDE, ("N", "M"), domain=(-1.0, 1.0), poles=(-1.0, 1.0)),),
            outputs=(Output("y", WIDE, ("N",)),),
            batching="leading_axis",
        )
    ),
    Hard(
        structured(
            "squares_without_nan",
            custom_gradient(
                lambda x: tf.reduce_sum(tf.square(without_nan(x)), axis=-1),
                lambda x, dy: 2 * without_nan(x) * dy[:, None],
            ),
            lambda x: np.nansum(x**2, axis=-1),
            {"x": [[0.5, -0.25], [0.0, 0.9]]},
            inputs=(Input("x", WIDE, ("N", "M")),),
            outputs=(Output("y", WIDE, ("N",)),),
            batching="leading_axis",
        )
    ),
)
