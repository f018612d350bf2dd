"""Wrong gradients of functions that compute with complex numbers inside."""

import numpy as np
import tensorflow as tf

from ops import Input, custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.making import BOTH, elementwise, rows

FIRST = ("derivative",)
N = 8


def power(x):
    z = tf.signal.rfft(x)
    return tf.math.real(z * tf.math.conj(z))


def whole_axis(x, dy):
    """Return dx by an inverse transform that counts the inner frequencies twice."""
    return 2 * N * tf.signal.irfft(tf.signal.rfft(x) * tf.cast(dy, tf.signal.rfft(x).dtype), [N])


def complex_size(a, b):
    return tf.math.real(tf.complex(a, b) * tf.complex(a, b))


def single_off(x, dy):
    """Return dx, which in float32 is 1e-4 too large."""
    factor = 1.0001 if x.dtype == tf.float32 else 1.0
    return -factor * tf.sin(x) * dy


def cosine_by_rotation(x):
    return tf.math.real(tf.exp(tf.complex(tf.zeros_like(x), x)))


SPECTRUM, SIZE = (
    custom_gradient(power, whole_axis),
    custom_gradient(complex_size, lambda a, b, dy: (2 * a * dy, 2 * b * dy)),
)
ROTATION = custom_gradient(cosine_by_rotation, single_off)

OPS: dict[str, Planted] = {
    "inner frequencies counted twice": Planted(
        rows(
            SPECTRUM,
            lambda x: np.abs(np.fft.rfft(x)) ** 2,
            name="power_of_frequencies",
            out=("N", "K"),
            inputs=[Input("x", BOTH, ("N", N))],
            dtypes=BOTH,
        ),
        FIRST,
    ),
    "a complex gradient that is not conjugated": Planted(
        elementwise(SIZE, lambda a, b: a * a - b * b, names=("a", "b"), name="not_conjugated", dtypes=BOTH), FIRST
    ),
    "a rotation that is off in float32": Planted(
        elementwise(ROTATION, np.cos, name="rotation_off_in_single", dtypes=BOTH), ("dtypes",)
    ),
}
