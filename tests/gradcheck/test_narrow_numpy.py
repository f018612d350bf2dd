"""Pages whose NumPy computes in float32 though the tensors are float64: the bars are those of what it shows."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ops import Array, Example, Input, Op, Output
from tests.gradcheck.checking import failed, report
from tests.gradcheck.op_makers import WIDE, elementwise

MATRIX = np.linspace(-1, 1, 12).reshape(3, 4).astype(np.float32)


def in_numpy(function: Callable[..., Array], like: Any, *xs: Any) -> Any:
    """Return what a function of NumPy computes in float32, with the shape of ``like``."""

    @wraps(function)
    def narrow(*arrays: Array) -> Array:
        with np.errstate(all="ignore"):
            return function(*(x.astype(np.float32) for x in arrays)).astype(np.float64)

    y = tf.numpy_function(narrow, xs, tf.float64)
    return tf.ensure_shape(y, like)


def of_numbers(factor: float) -> Op:
    """Return y = exp(0.3 x) sin(x), whose gradient has a factor."""

    @tf.custom_gradient
    def function(x: Any) -> Any:
        def vjp(dy: Any) -> Any:
            slope = in_numpy(lambda x: np.exp(0.3 * x) * (np.cos(x) + 0.3 * np.sin(x)), x.shape, x)
            return factor * slope * dy

        return in_numpy(lambda x: np.exp(0.3 * x) * np.sin(x), x.shape, x), vjp

    return elementwise(function, modes=("graph", "eager"))


def of_rows(factor: float) -> Op:
    """Return y = tanh(A x) of rows, whose gradient has a factor."""

    @tf.custom_gradient
    def function(x: Any) -> Any:
        def vjp(dy: Any) -> Any:
            return factor * in_numpy(lambda x, dy: (dy * (1 - np.tanh(x @ MATRIX.T) ** 2)) @ MATRIX, [None, 4], x, dy)

        return in_numpy(lambda x: np.tanh(x @ MATRIX.T), [None, 3], x), vjp

    return elementwise(
        function,
        inputs=(Input("x", WIDE, ("N", 4)),),
        outputs=(Output("y", WIDE, ("N", 3)),),
        batching="leading_axis",
        modes=("graph", "eager"),
        examples=(Example("one", {"x": [[0.3, -1.2, 2.0, 0.7]]}),),
    )


OPS = {"numbers": of_numbers, "rows": of_rows}
CHECKS = ("batching", "derivative", "sizes", "linearity", "modes")


@pytest.mark.slow
@pytest.mark.share(5)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", OPS)
def test_a_right_page_does_not_fail(name: str, seed: int) -> None:
    document = report(OPS[name](1.0), seed=seed, checks=CHECKS, orders=(1,))
    assert document["verdict"] in ("pass", "inconclusive"), document["checks"]


@pytest.mark.slow
@pytest.mark.share(5)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("factor", [1.001, 0.0])
@pytest.mark.parametrize("name", OPS)
def test_a_wrong_gradient_fails(name: str, factor: float, seed: int) -> None:
    assert "derivative" in failed(report(OPS[name](factor), seed=seed, checks=("derivative",), orders=(1,)))
