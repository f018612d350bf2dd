"""The complex tangent has its derivatives near its poles and far from the real axis."""

import numpy as np
import pytest
import tensorflow as tf

import app.runtime.modes  # noqa: F401 - it installs the correction
from tests.ops.places import PLACES

HEIGHTS = (0.0, 0.5, 0.999, 1.001, 3.0, 30.0, 100.0, 800.0, 1e30)
Z = np.array([x + sign * 1j * y for x in (0.0, 0.3, -1.5, 100.0) for y in HEIGHTS for sign in (1, -1)])


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("place", ["eager", "gradients inside", "xla, tape inside", "v1"])
def test_derivatives_are_those_of_the_formula(place: str, dtype: str) -> None:
    z = Z.astype(dtype)
    _, *found = PLACES[place](tf.tan, z, 2)
    exact = z.astype(complex)
    with np.errstate(under="ignore"):
        w = np.exp(2j * np.where(exact.imag > 0, exact, -exact))
    squared_secant = 4 * w / (1 + w) ** 2
    tiny, eps = np.finfo(dtype).tiny, np.finfo(dtype).eps
    for derivative, expected in zip(found, [squared_secant, 2 * squared_secant * np.tan(exact)], strict=True):
        # TensorFlow's cotangents are conjugate.
        error = np.abs(np.conj(derivative) - expected)
        assert (error <= 64 * eps * np.abs(expected) + 64 * tiny).all()
