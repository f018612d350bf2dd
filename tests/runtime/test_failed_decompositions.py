"""What no kernel has written is in no answer: a failed Cholesky factor is NaN below the diagonal, and 0 above it."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import gen_linalg_ops

import app.runtime.modes  # noqa: F401 - it installs the correction
from app.runtime.calculus import Graph, Tapes

LOWER = np.tril(np.ones((3, 3), bool))
CALLS = {
    "public": tf.linalg.cholesky,
    "raw": lambda a: tf.raw_ops.Cholesky(input=a),
    "private": gen_linalg_ops.cholesky,
    "v1": tf.compat.v1.cholesky,
}


def batch(dtype: str) -> np.ndarray:
    """Return a matrix that has a factor, and one that has none."""
    return np.stack([np.eye(3) * 4 + 1, -np.eye(3)]).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_failed_factors_are_nan_and_zero(call, dtype: str) -> None:
    a = batch(dtype)
    for found in (call(tf.constant(a)), tf.function(call, autograph=False)(tf.constant(a))):
        good, bad = found.numpy()
        np.testing.assert_allclose(good, np.linalg.cholesky(a[0]), rtol=1e-5)
        assert np.isnan(bad[LOWER]).all()
        assert not bad[~LOWER].any()


@pytest.mark.parametrize("order", [1, 2])
def test_derivatives_are_those_of_the_graph(order: int) -> None:
    a = batch("float64")

    def derivatives(calculus, x):
        calculus.watch([x])
        found = tf.linalg.cholesky(x) ** 2
        for _ in range(order):
            found = calculus.pullback([found], [x])(None)[0]
        return found

    with Tapes(order) as tapes:
        eager = derivatives(tapes, tf.constant(a)).numpy()
    graph = tf.function(lambda x: derivatives(Graph(), x), autograph=False)(tf.constant(a)).numpy()
    np.testing.assert_allclose(eager, graph, rtol=1e-12, atol=1e-15)
    assert np.isfinite(eager[0]).all()
