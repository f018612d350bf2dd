"""Waves that are fast beside the steps of a numeric derivative."""

import numpy as np
import tensorflow as tf
from mpmath import mp
from pydantic import Field

from ops import Attrs, Example, Input, Output, custom_gradient
from tests.gradcheck.hard.exact import Hard, collected
from tests.gradcheck.hard.making import BOTH, SINGLE, WIDE, elementwise, structured

SPREAD = np.linspace(-2, 2, 17).tolist()
HARMONICS = np.arange(1.0, 40.0, 2.0)


class WaveAttrs(Attrs):
    """A wave's frequency and phase."""

    frequency: float = Field(default=3.0, gt=0)
    phase: float = 0.0


def wave_vjp(x, dy, *, frequency, phase):
    return frequency * tf.cos(frequency * x + phase) * dy


def wave_vjp_vjp(x, dy, ddx, *, frequency, phase):
    angle = frequency * x + phase
    return -frequency * frequency * tf.sin(angle) * dy * ddx, frequency * tf.cos(angle) * ddx


def product_vjp(x, y, dz):
    return 60 * tf.cos(60 * x) * tf.cos(45 * y) * dz, -45 * tf.sin(60 * x) * tf.sin(45 * y) * dz


def product_vjp_vjp(x, y, dz, ddx, ddy):
    sx, cx, sy, cy = tf.sin(60 * x), tf.cos(60 * x), tf.sin(45 * y), tf.cos(45 * y)
    return (
        -dz * (3600 * sx * cy * ddx + 2700 * cx * sy * ddy),
        -dz * (2700 * cx * sy * ddx + 2025 * sx * cy * ddy),
        60 * cx * cy * ddx - 45 * sx * sy * ddy,
    )


def square_wave(x):
    harmonics = tf.constant(HARMONICS, x.dtype)
    return tf.reduce_sum(tf.sin(harmonics * x[..., None]) / harmonics, axis=-1)


def square_wave_reference(x):
    return (np.sin(HARMONICS * np.asarray(x)[..., None]) / HARMONICS).sum(axis=-1)


OPS = collected(
    Hard(
        elementwise(
            "fast_sine",
            lambda x: tf.sin(500 * x),
            lambda x: np.sin(500 * x),
            {"x": SPREAD},
            dtypes=("float32", "float64", "bfloat16"),
        ),
        lambda x: mp.sin(500 * x),
    ),
    Hard(
        elementwise(
            "loud_sine",
            custom_gradient(
                lambda x: 100 * tf.sin(1000 * x),
                lambda x, dy: 1e5 * tf.cos(1000 * x) * dy,
                lambda x, dy, ddx: (-1e8 * tf.sin(1000 * x) * dy * ddx, 1e5 * tf.cos(1000 * x) * ddx),
            ),
            lambda x: 100 * np.sin(1000 * x),
            {"x": SPREAD},
        ),
        lambda x: 100 * mp.sin(1000 * x),
    ),
    Hard(
        elementwise(
            "loud_sine_single",
            lambda x: 100 * tf.sin(1000 * x),
            lambda x: 100 * np.sin(1000 * x),
            {"x": SPREAD},
            dtypes=SINGLE,
        ),
        lambda x: 100 * mp.sin(1000 * x),
    ),
    Hard(
        elementwise(
            "sine_of_70",
            lambda x: tf.sin(70 * x),
            lambda x: np.sin(70 * x),
            {"x": SPREAD},
            dtypes=("float32", "float64", "bfloat16"),
        ),
        lambda x: mp.sin(70 * x),
    ),
    Hard(
        elementwise(
            "half_sine",
            lambda x: tf.sin(100 * x),
            lambda x: np.sin(100 * x),
            {"x": SPREAD},
            dtypes=("float16",),
            slots={"x": {"domain": (-1.0, 1.0)}},
        ),
        lambda x: mp.sin(100 * x),
    ),
    Hard(
        elementwise(
            "brain_cosine",
            custom_gradient(lambda x: tf.cos(30 * x), lambda x, dy: -30 * tf.sin(30 * x) * dy),
            lambda x: np.cos(30 * x),
            {"x": SPREAD},
            dtypes=("bfloat16",),
        ),
        lambda x: mp.cos(30 * x),
    ),
    Hard(
        elementwise(
            "chirp",
            custom_gradient(lambda x: tf.sin(20 * x * x), lambda x, dy: 40 * x * tf.cos(20 * x * x) * dy),
            lambda x: np.sin(20 * x * x),
            {"x": [0.0, 1.0, -4.5]},
            dtypes=BOTH,
            slots={"x": {"domain": (-5.0, 5.0)}},
        ),
        lambda x: mp.sin(20 * x * x),
    ),
    Hard(
        elementwise(
            "exponential_chirp",
            lambda x: tf.sin(tf.exp(3 * x)),
            lambda x: np.sin(np.exp(3 * x)),
            {"x": [-1.0, 0.0, 2.0]},
            slots={"x": {"domain": (-1.0, 2.5)}},
        ),
        lambda x: mp.sin(mp.exp(3 * x)),
    ),
    Hard(
        elementwise(
            "wave_product",
            custom_gradient(lambda x, y: tf.sin(60 * x) * tf.cos(45 * y), product_vjp, product_vjp_vjp),
            lambda x, y: np.sin(60 * x) * np.cos(45 * y),
            {"x": [0.0, 0.5, -2.0], "y": [1.0, 0.0, 2.5]},
            dtypes=BOTH,
            outputs=("z",),
        ),
        lambda x, y: mp.sin(60 * x) * mp.cos(45 * y),
    ),
    Hard(
        elementwise(
            "beat",
            lambda x: tf.cos(200 * x) + tf.cos(201 * x),
            lambda x: np.cos(200 * x) + np.cos(201 * x),
            {"x": SPREAD},
        ),
        lambda x: mp.cos(200 * x) + mp.cos(201 * x),
    ),
    Hard(
        elementwise(
            "reciprocal_wave",
            lambda x: tf.sin(1 / x),
            lambda x: np.sin(1 / x),
            {"x": [0.001, 0.01, 0.5]},
            dtypes=BOTH,
            slots={"x": {"domain": (0.005, 1.0), "poles": (0.0,)}},
        ),
        lambda x: mp.sin(1 / x),
    ),
    Hard(
        elementwise(
            "wave_packet",
            lambda x: tf.exp(-x * x / 2) * tf.sin(300 * x),
            lambda x: np.exp(-x * x / 2) * np.sin(300 * x),
            {"x": [0.0, 0.1, 6.0, -8.0]},
            slots={"x": {"domain": (-8.0, 8.0)}},
        ),
        lambda x: mp.exp(-x * x / 2) * mp.sin(300 * x),
    ),
    Hard(
        elementwise(
            "wave",
            custom_gradient(lambda x, *, frequency, phase: tf.sin(frequency * x + phase), wave_vjp, wave_vjp_vjp),
            lambda x, *, frequency, phase: np.sin(frequency * x + phase),
            {"x": SPREAD},
            dtypes=BOTH,
            attrs=WaveAttrs,
            examples=(
                Example("slow", {"x": SPREAD}),
                Example("fast", {"x": SPREAD}, {"frequency": 2000.0, "phase": 0.25}),
            ),
        ),
        lambda x, *, frequency, phase: mp.sin(mp.mpf(frequency) * x + phase),
    ),
    Hard(
        elementwise("square_wave", square_wave, square_wave_reference, {"x": SPREAD}, dtypes=BOTH),
        lambda x: sum(mp.sin(int(k) * x) / int(k) for k in HARMONICS),
    ),
    Hard(
        elementwise(
            "phasor",
            lambda x: (tf.cos(400 * x), tf.sin(400 * x)),
            lambda x: (np.cos(400 * x), np.sin(400 * x)),
            {"x": SPREAD},
            dtypes=BOTH,
            outputs=("re", "im"),
        ),
        lambda x: (mp.cos(400 * x), mp.sin(400 * x)),
    ),
    Hard(
        structured(
            "sum_of_fast_sines",
            lambda x: tf.reduce_sum(tf.sin(200 * x), axis=-1),
            lambda x: np.sin(200 * x).sum(axis=-1),
            {"x": [[0.0, 0.5, 1.0], [-2.0, 0.25, 3.0]]},
            inputs=(Input("x", WIDE, ("N", "M")),),
            outputs=(Output("y", WIDE, ("N",)),),
            batching="leading_axis",
        ),
        lambda x: [sum(mp.sin(200 * v) for v in row) for row in x],
    ),
)
