"""Variances have their derivatives at every order, however a page computes them."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import nn_impl

import app.runtime.modes  # noqa: F401 - it installs the correction
from tests.ops.places import PLACES

X = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75], [-0.3, 0.4, 0.9]])
VARIANCES: dict[str, Callable[[Any], Any]] = {
    "moments": lambda x: tf.nn.moments(x, [0])[1],
    "kept": lambda x: tf.nn.moments(x, 0, keepdims=True)[1],
    "v1": lambda x: tf.compat.v1.nn.moments(x, [0])[1],
    "v1 kept": lambda x: tf.compat.v1.nn.moments(x, [0], keep_dims=True)[1],
    "keras": lambda x: keras.ops.moments(x, [0])[1],
    "weighted": lambda x: tf.nn.weighted_moments(x, [0], tf.ones_like(x))[1],
    "statistics": lambda x: tf.nn.normalize_moments(*tf.nn.sufficient_statistics(x, [0])[:3], None)[1],
    "reduce_variance": lambda x: tf.math.reduce_variance(x, 0),
    "keras var": lambda x: keras.ops.var(x, 0),
}


def central(x: Any) -> Any:
    return tf.reduce_mean((x - tf.reduce_mean(x, 0)) ** 2, 0)


@pytest.mark.parametrize("name", VARIANCES)
@pytest.mark.parametrize("place", [PLACES[name] for name in ("eager", "tape outside", "gradients inside")])
def test_derivatives_are_those_of_the_central_moment(place: Any, name: str) -> None:
    weights = np.array([1.0, -0.5, 2.0])

    def square(variance: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: tf.reduce_sum(tf.reshape(variance(x), [-1]) ** 2 * weights)

    for found, expected in zip(place(square(VARIANCES[name]), X, 3), place(square(central), X, 3), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("place", [PLACES[name] for name in ("eager", "gradients inside")])
def test_a_fused_batch_normalization_has_its_third_order(place: Any) -> None:
    scale, offset = tf.ones([3]), tf.zeros([3])

    def fused(x: Any) -> Any:
        pixels = tf.compat.v1.nn.fused_batch_norm(x[:, None, None], scale, offset, epsilon=0.01, is_training=True)[0]
        return pixels[:, 0, 0]

    def by_hand(x: Any) -> Any:
        return (x - tf.reduce_mean(x, 0)) / tf.sqrt(central(x) + 0.01)

    def cubes(normalized: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: tf.reduce_sum(normalized(x**2) ** 3 * X)

    x = X.astype("float32")
    for found, expected in zip(place(cubes(fused), x, 3), place(cubes(by_hand), x, 3), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axes", [[0], [0, 1], 1, -1])
def test_values_keep_their_bits(axes: Any, keepdims: bool, dtype: str) -> None:
    x = tf.cast(X, dtype)
    before: Any = nn_impl.moments
    for found, expected in zip(
        tf.nn.moments(x, axes, keepdims=keepdims), before.__wrapped__(x, axes, keepdims=keepdims), strict=True
    ):
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found.numpy(), expected.numpy())
