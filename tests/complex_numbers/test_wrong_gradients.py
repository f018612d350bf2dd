"""Gradients of TensorFlow that are wrong for complex numbers: refused, and still wrong without the guard."""

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework.ops import gradient_registry

import app.runtime.modes  # noqa: F401 - it installs the guards
from app.runtime.repairs import complex_gradients
from pullback.ops import OpFault, custom_gradient

TWO = [0, 1, 1, 0]
Function = Callable[[tf.Tensor], tf.Tensor]
FIRST: dict[str, Function] = {
    "EuclideanNorm": tf.math.reduce_euclidean_norm,
    "MatrixDeterminant": lambda z: tf.linalg.det(tf.reshape(z, [2, 2])),
    "MatrixSquareRoot": lambda z: tf.linalg.sqrtm(tf.reshape(z, [2, 2]) + 3 * tf.eye(2, dtype=z.dtype)),
    "MulNoNan": lambda z: tf.math.multiply_no_nan(z, z),
    "SquaredDifference": lambda z: tf.math.squared_difference(z, 1j * z),
    "TridiagonalSolve": lambda z: tf.linalg.tridiagonal_solve(tf.stack([z, 4 + z, z]), z),
    "Xdivy": lambda z: tf.math.xdivy(z, 2 + z),
    "Xlog1py": lambda z: tf.math.xlog1py(z, z),
    "Xlogy": lambda z: tf.math.xlogy(z, z),
    "LogMatrixDeterminant": lambda z: tf.linalg.slogdet(tf.reshape(z, [2, 2]))[0],
}
SECOND: dict[str, Function] = {
    "Svd": lambda z: tf.abs(tf.linalg.svd(tf.reshape(z, [2, 2]))[1]),
}
RIGHT: dict[str, Function] = {
    "cumulative products": tf.math.cumprod,
    "exclusive cumulative products": lambda z: tf.math.cumprod(z, exclusive=True, reverse=True),
    "product": tf.reduce_prod,
    "products of segments": lambda z: tf.math.segment_prod(z, [0, 0, 1, 1]),
    "products of segments in any order": lambda z: tf.math.unsorted_segment_prod(z, TWO, 2),
    "the size of slogdet": lambda z: tf.math.real(tf.linalg.slogdet(tf.reshape(z, [2, 2]))[1]),
    "the size of slogdet as a complex number": lambda z: tf.linalg.slogdet(tf.reshape(z, [2, 2]))[1],
    "singular values": lambda z: tf.linalg.svd(tf.reshape(z, [2, 2]), compute_uv=False) ** 2,
    "singular values beside vectors": lambda z: tf.linalg.svd(tf.reshape(z, [2, 2]))[0] ** 3,
}
Z = tf.constant([[0.75, 0.5], [1.25, -0.5], [0.25, 1.0], [1.5, 0.125]], tf.float64)
ALONG = tf.constant([[1.0, -0.5], [0.25, 1.0], [-1.0, 0.5], [0.5, 0.75]], tf.float64)

pytestmark = pytest.mark.slow


@pytest.fixture
def unguarded(monkeypatch: pytest.MonkeyPatch) -> None:
    for entry in gradient_registry._registry.values():
        if getattr(entry["type"], "__module__", "") == complex_gradients.__name__:
            monkeypatch.setitem(entry, "type", entry["type"].__wrapped__)


def weighted(function: Function, parts: tf.Tensor) -> tf.Tensor:
    y = function(tf.complex(parts[..., 0], parts[..., 1]))
    ramp = tf.reshape(tf.range(1.0, tf.cast(tf.size(y), tf.float64) + 1, dtype=tf.float64), tf.shape(y))
    return tf.reduce_sum(tf.math.real(y * tf.cast(ramp, y.dtype) * (1 - 2j if y.dtype.is_complex else 1)))


def gradient(of: Function, x: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = of(x)
    return tape.gradient(y, x)


def first(function: Function, x: tf.Tensor) -> tf.Tensor:
    return gradient(lambda x: weighted(function, x), x)


def second(function: Function, x: tf.Tensor) -> tf.Tensor:
    return gradient(lambda x: tf.reduce_sum(first(function, x) * ALONG), x)


def error(function: Function, order: Callable[..., tf.Tensor]) -> float:
    """Return the relative error of the derivative along a direction, by differences."""
    of, h = weighted if order is first else lambda f, x: tf.reduce_sum(first(f, x) * ALONG), 1e-4
    expected = float(of(function, Z + h * ALONG) - of(function, Z - h * ALONG)) / (2 * h)
    return abs(float(tf.reduce_sum(order(function, Z) * ALONG)) - expected) / (1e-3 + abs(expected))


ORDERS = [
    pytest.param(function, order, id=name)
    for order, functions in ((first, FIRST), (second, SECOND))
    for name, function in functions.items()
]


@pytest.mark.parametrize(("function", "order"), ORDERS)
def test_wrong_gradients_are_refused(function, order) -> None:
    with pytest.raises(OpFault, match=r"the gradient of .* is wrong for complex numbers"):
        order(function, Z)
    if order is second:
        assert error(function, first) < 1e-6

    @tf.function(autograph=False)
    def traced(x: tf.Tensor) -> tf.Tensor:
        return order(function, x)

    with pytest.raises(OpFault, match="wrong for complex"):
        traced(Z)


@pytest.mark.thorough
@pytest.mark.usefixtures("unguarded")
@pytest.mark.parametrize(("function", "order"), ORDERS)
def test_they_are_wrong(function, order) -> None:
    """Take a gradient that TensorFlow has corrected out of the list."""
    assert error(function, order) > 1e-3


@pytest.mark.parametrize("name", RIGHT)
def test_right_ones_are_not_refused(name) -> None:
    assert error(RIGHT[name], first) < 1e-6
    assert error(RIGHT[name], second) < 1e-6


def test_real_numbers_and_own_gradients_are_not_refused() -> None:
    x = tf.constant([[2.0, 1.0], [0.5, 3.0]], tf.float64)
    np.testing.assert_allclose(gradient(tf.linalg.det, x), [[3, -0.5], [-1, 2]])

    def vjp(z: tf.Tensor, dw: tf.Tensor) -> tf.Tensor:
        return tf.linalg.inv(z, adjoint=True) * tf.math.conj(tf.linalg.det(z)) * dw

    own = custom_gradient(tf.linalg.det, vjp)
    assert error(lambda z: own(tf.reshape(z, [2, 2])), first) < 1e-6
