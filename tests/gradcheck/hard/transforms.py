"""Ops that compute with complex numbers inside, Fourier transforms above all, and kernels that add many numbers."""

from typing import Any

import numpy as np
import tensorflow as tf
from mpmath import mp

# XLA has no kernel for the eigenvalues of matrices that are not symmetric.
from ops import UNCOMPILED, Input, Output
from tests.gradcheck.hard.exact import Hard, collected
from tests.gradcheck.hard.first_order import first_only
from tests.gradcheck.hard.making import BOTH, elementwise, structured
from tests.gradcheck.hard.matrices import of_matrix

COUNT = 16
FRAMES: dict[str, Any] = {"frame_length": 8, "frame_step": 4}
RNG = np.random.default_rng(7)
LINE, OTHER = RNG.uniform(-3, 3, (2, 2, COUNT)).round(3).tolist()
IMAGE = RNG.uniform(-3, 3, (2, 4, 6)).round(3).tolist()


def imaginary(x):
    return tf.complex(tf.zeros_like(x), x)


def complex_square(a, b):
    return tf.math.real(tf.square(tf.complex(a, b)))


def complex_step(x):
    """The derivative of sin(x)/x, from a step of 1e-20 along the imaginary axis."""
    z = tf.complex(x, tf.fill(tf.shape(x), tf.constant(1e-20, x.dtype)))
    return tf.math.imag(tf.sin(z) / z) * 1e20


def argument_and_size(a, b):
    log = tf.math.log(tf.complex(a, b))
    return tf.math.real(log), tf.math.imag(log)


def complex_root(a, b):
    root = tf.sqrt(tf.complex(a, b))
    return tf.math.real(root), tf.math.imag(root)


def power(z):
    return tf.math.real(z * tf.math.conj(z))


def low_pass(x):
    """The inverse transform of the lower half of the frequencies."""
    z = tf.signal.rfft(x)
    kept = tf.range(tf.shape(z)[-1]) * 2 < tf.shape(z)[-1]
    return tf.signal.irfft(tf.where(kept, z, tf.zeros_like(z)), tf.shape(x)[-1:])


def convolution(x, w):
    """The circular convolution of each row, by Fourier transforms."""
    return tf.signal.irfft(tf.signal.rfft(x) * tf.signal.rfft(w), tf.shape(x)[-1:])


def convolution_reference(x, w):
    n = x.shape[-1]
    return np.stack([(x * np.roll(w[..., ::-1], k + 1, axis=-1)).sum(axis=-1) for k in range(n)], axis=-1)


def exact_convolution(x, w):
    n = len(x[0])
    return [[mp.fsum(a[i] * b[(k - i) % n] for i in range(n)) for k in range(n)] for a, b in zip(x, w, strict=True)]


def inverse(x):
    """The real part of the inverse transform of a spectrum whose imaginary part is the reverse of the real one."""
    return tf.math.real(tf.signal.ifft(tf.complex(x, tf.reverse(x, [-1]))))


def plane(x):
    return tf.math.real(tf.signal.rfft2d(x)) + tf.math.imag(tf.signal.rfft2d(x))


def plane_reference(x):
    z = np.fft.rfft2(x)
    return z.real + z.imag


def spectrogram_reference(x):
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(8) / 8)
    frames = np.stack([x[..., k : k + 8] for k in range(0, x.shape[-1] - 7, 4)], axis=-2)
    return np.abs(np.fft.rfft(frames * window)) ** 2


def complex_product(x, w):
    """The real part of a product of complex matrices."""
    y = tf.einsum("nm,mk->nk", tf.complex(x, x[:, ::-1]), tf.complex(w, 1 - w))
    return tf.math.real(y)


def determinant_by_eigenvalues(a):
    values, _ = tf.linalg.eig(a)
    return tf.math.real(tf.reduce_prod(values))


def columns(x):
    """The sum of each column, which cancels."""
    return tf.reduce_sum(x, axis=-2)


def correlation_reference(x, w):
    n, k = x.shape[-1], len(w)
    padded = np.pad(x, [(0, 0), ((k - 1) // 2, k // 2)])
    return np.stack([padded[:, i : i + k] @ w for i in range(n)], axis=-1)


def of_lines(name, function, reference, y=("N", "K"), **changes):
    """Return an op of rows that are transformed one by one."""
    fields: dict[str, Any] = {
        "inputs": (Input("x", BOTH, ("N", COUNT)),),
        "outputs": (Output("y", BOTH, y),),
        "batching": "leading_axis",
    }
    return structured(name, function, reference, changes.pop("at", {"x": LINE}), **(fields | changes))


def of_planes(name, function, reference, *, x, at, y):
    return of_lines(name, function, reference, y, at={"x": at}, inputs=(Input("x", BOTH, x),))


PAIR: dict[str, Any] = {"inputs": (Input("x", BOTH, ("N", COUNT)), Input("w", BOTH, ("N", COUNT)))}
HALF_PLANE: dict[str, Any] = {"a": {"domain": (-3.0, 3.0)}, "b": {"domain": (0.01, 3.0)}}
AT: dict[str, Any] = {"a": [1.0, -0.5, 2.7182817], "b": [1.0000001, 0.3333334, 2.7182812]}

# In XLA, TensorFlow's gradients of complex numbers forget to conjugate, and its second gradient of eigenvalues is
# wrong in any mode.
OPS = collected(
    Hard(
        elementwise("complex_square", complex_square, lambda a, b: a * a - b * b, AT, dtypes=BOTH),
        lambda a, b: a * a - b * b,
    ),
    Hard(
        elementwise(
            "complex_step",
            complex_step,
            lambda x: (np.cos(x) - np.sin(x) / x) / x,
            {"x": [0.5, 1.5, 3.0]},
            slots={"x": {"domain": (0.5, 3.0)}},
            modes=UNCOMPILED,
        ),
        lambda x: (mp.cos(x) - mp.sin(x) / x) / x,
    ),
    Hard(
        elementwise(
            "complex_log",
            argument_and_size,
            lambda a, b: (np.log(np.hypot(a, b)), np.arctan2(b, a)),
            AT,
            dtypes=BOTH,
            slots=HALF_PLANE,
            modes=UNCOMPILED,
            outputs=("size", "angle"),
        ),
        lambda a, b: (mp.log(mp.hypot(a, b)), mp.atan2(b, a)),
    ),
    Hard(
        elementwise(
            "complex_root",
            complex_root,
            lambda a, b: (np.sqrt(a + 1j * b).real, np.sqrt(a + 1j * b).imag),
            AT,
            dtypes=BOTH,
            slots=HALF_PLANE,
            modes=UNCOMPILED,
            outputs=("real", "imaginary"),
        ),
        lambda a, b: (mp.sqrt((mp.hypot(a, b) + a) / 2), mp.sqrt((mp.hypot(a, b) - a) / 2)),
    ),
    Hard(
        elementwise(
            "complex_exponential",
            lambda x: tf.math.real(tf.exp(imaginary(x)) * tf.exp(imaginary(x))),
            lambda x: np.cos(2 * x),
            {"x": [0.5, -1.0, 2.0]},
            dtypes=BOTH,
        ),
        lambda x: mp.cos(2 * x),
    ),
    Hard(of_lines("power_spectrum", lambda x: power(tf.signal.rfft(x)), lambda x: np.abs(np.fft.rfft(x)) ** 2)),
    Hard(
        of_lines("low_pass", low_pass, lambda x: np.fft.irfft(np.fft.rfft(x) * (np.arange(9) < 5), COUNT), ("N", COUNT))
    ),
    Hard(of_lines("inverse_transform", inverse, lambda x: np.fft.ifft(x + 1j * x[..., ::-1]).real)),
    Hard(
        of_lines(
            "convolution_by_transforms",
            convolution,
            convolution_reference,
            ("N", COUNT),
            at={"x": LINE, "w": OTHER},
            **PAIR,
        ),
        exact_convolution,
    ),
    Hard(of_lines("spectrogram", lambda x: power(tf.signal.stft(x, **FRAMES)), spectrogram_reference, ("N", 3, 5))),
    Hard(of_planes("transform_of_a_plane", plane, plane_reference, x=("N", 4, 6), at=IMAGE, y=("N", 4, 4))),
    Hard(
        structured(
            "complex_product",
            complex_product,
            lambda x, w: x @ w - x[:, ::-1] @ (1 - w),
            {"x": LINE, "w": np.array(OTHER).T.tolist()},
            inputs=(Input("x", BOTH, ("N", "M")), Input("w", BOTH, ("M", "K"))),
            outputs=(Output("y", BOTH, ("N", "K")),),
        )
    ),
    Hard(
        of_matrix(
            "size_of_eigenvalues",
            lambda a: tf.reduce_sum(power(tf.linalg.eigvals(a))),
            lambda a: np.sum(np.abs(np.linalg.eigvals(a)) ** 2),
            y=(),
            modes=UNCOMPILED,
        )
    ),
    Hard(
        of_matrix(
            "determinant_by_eigenvalues",
            determinant_by_eigenvalues,
            np.linalg.det,
            y=(),
            modes=UNCOMPILED,
            claim=first_only,
        ),
        lambda a: mp.det(mp.matrix(a)),
    ),
    Hard(
        of_lines(
            "sums_of_columns",
            columns,
            lambda x: x.sum(axis=-2),
            ("M",),
            at={"x": RNG.normal(size=(300, 3)).round(3).tolist()},
            inputs=(Input("x", BOTH, ("N", "M")),),
            batching="none",
        )
    ),
    Hard(
        of_lines(
            "correlation",
            lambda x, w: tf.nn.conv1d(x[..., None], w[:, None, None], stride=1, padding="SAME")[..., 0],
            correlation_reference,
            ("N", "M"),
            at={"x": RNG.normal(size=(2, 40)).round(3).tolist(), "w": RNG.normal(size=25).round(3).tolist()},
            inputs=(Input("x", BOTH, ("N", "M")), Input("w", BOTH, ("K",))),
            batching="none",
        )
    ),
)
