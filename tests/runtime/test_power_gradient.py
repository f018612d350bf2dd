"""Powers with a constant exponent have their derivatives at 0, at each order and in each place."""

import numpy as np
import pytest
import tensorflow as tf

import app.runtime.modes  # noqa: F401 - it installs the gradient
from tests.ops.places import PLACES

X = np.array([0.0, 2.0, -1.5])


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("place", [PLACES[name] for name in ("eager", "tape outside", "gradients inside")])
@pytest.mark.parametrize("exponents", [0, 1, 2, 3, (1, 2, 3), ((0,), (2,))], ids=str)
def test_derivatives_at_zero_are_those_of_polynomials(place, exponents, dtype) -> None:
    powers = np.broadcast_to(np.asarray(exponents, float), np.broadcast_shapes(np.shape(exponents), X.shape))
    found = place(lambda x: tf.pow(x, tf.constant(exponents, x.dtype)), X.astype(dtype), 4)
    factor = np.ones(powers.shape)
    for order, derivative in enumerate(found[1:]):
        factor = factor * (powers - order)
        expected = factor * X ** np.maximum(powers - order - 1, 0)
        np.testing.assert_allclose(derivative, expected.reshape(-1, 3).sum(0))


def test_a_derivative_in_the_exponent_is_kept() -> None:
    with tf.GradientTape() as tape:
        x, exponent = tf.constant([1.0, 2.0]), tf.constant(2.0)
        tape.watch([x, exponent])
        y = tf.pow(x, exponent)
    dx, dexponent = tape.gradient(y, [x, exponent])
    np.testing.assert_allclose(dx, [2, 4])
    np.testing.assert_allclose(dexponent, 4 * np.log(2), rtol=1e-6)

    @tf.function
    def in_a_graph() -> tf.Tensor:
        exponent = tf.constant(2.0)
        return tf.gradients(tf.pow(tf.constant(2.0), exponent), exponent)[0]

    np.testing.assert_allclose(in_a_graph(), 4 * np.log(2), rtol=1e-6)
