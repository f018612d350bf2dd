"""Wrong gradients of functions that compute with complex numbers inside."""

import numpy as np
import tensorflow as tf

from ops import Array, Input, Tensor, custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.making import BOTH, elementwise, rows

FIRST = ("derivative",)
N = 8


def power(x: Tensor) -> Tensor:
    z = tf.signal.rfft(x)
    return tf.math.real(z * tf.math.conj(z))


def whole_axis(x: Tensor, dy: Tensor) -> Tensor:
    """Return dx by an inverse transform that counts the inner frequencies twice."""
    return 2 * N * tf.signal.irfft(tf.signal.rfft(x) * tf.cast(dy, tf.signal.rfft(x).dtype), [N])


def power_reference(x: Array) -> Array:
    return np.abs(np.fft.rfft(x)) ** 2


def complex_size(a: Tensor, b: Tensor) -> Tensor:
    return tf.math.real(tf.complex(a, b) * tf.complex(a, b))


def not_conjugated(a: Tensor, b: Tensor, dy: Tensor) -> tuple[Tensor, Tensor]:
    return 2 * a * dy, 2 * b * dy


def complex_size_reference(a: Array, b: Array) -> Array:
    return a * a - b * b


def single_off(x: Tensor, dy: Tensor) -> Tensor:
    """Return dx, which in float32 is 1e-4 too large."""
    factor = 1.0001 if x.dtype == tf.float32 else 1.0
    return -factor * tf.sin(x) * dy


def cosine_by_rotation(x: Tensor) -> Tensor:
    return tf.math.real(tf.exp(tf.complex(tf.zeros_like(x), x)))


SPECTRUM, SIZE = custom_gradient(power, whole_axis), custom_gradient(complex_size, not_conjugated)
ROTATION = custom_gradient(cosine_by_rotation, single_off)

OPS: dict[str, Planted] = {
    "inner frequencies counted twice": Planted(
        rows(
            SPECTRUM,
            power_reference,
            name="power_of_frequencies",
            out=("N", "K"),
            inputs=[Input("x", BOTH, ("N", N))],
            dtypes=BOTH,
        ),
        FIRST,
    ),
    "a complex gradient that is not conjugated": Planted(
        elementwise(SIZE, complex_size_reference, names=("a", "b"), name="not_conjugated", dtypes=BOTH), FIRST
    ),
    "a rotation that is off in float32": Planted(
        elementwise(ROTATION, np.cos, name="rotation_off_in_single", dtypes=BOTH), ("dtypes",)
    ),
}
