"""The uncertainty of results of narrower dtypes inside an op, and of those that no random rounding can judge."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.autodiff.absent import Absent
from tests.autodiff.test_uncertainty import digits_of
from tests.gradcheck.wrong.making import BOTH, elementwise, rows

X = [0.3, 0.7, 1.1, 1.9]
TENTH, TENTHS = tf.constant(0.1), tf.constant([0.1] * 300)
HALF = float(np.finfo(np.float16).eps)
SINGLE = float(np.finfo(np.float32).eps)


def half(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: tf.cast(function(tf.cast(x, tf.float16)), x.dtype)


def in_a_loop(x):
    tenth = tf.constant(np.float32(0.1), x.dtype)
    return tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * tenth), [0, x])[1]


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize(
    ("function", "true", "unit"),
    [
        (half(tf.exp), np.exp, HALF),
        (half(lambda x: x * tf.constant(0.1, tf.float16) + x), lambda x: 1.1 * x, HALF),
        (lambda x: x * tf.cast(tf.tanh(tf.cast(x, tf.bfloat16)), x.dtype), lambda x: x * np.tanh(x), 8 * HALF),
        (lambda x: tf.cast(tf.sin(tf.cast(x, tf.float32)), x.dtype), np.sin, SINGLE),
        (lambda x: x * tf.cast(tf.constant(0.1), x.dtype), lambda x: x / 10, SINGLE),
        (lambda x: x * tf.cast(TENTH, x.dtype), lambda x: x / 10, SINGLE),
        (lambda x: x * tf.reduce_mean(tf.cast(TENTHS, x.dtype)), lambda x: x / 10, SINGLE),
        (lambda x: x * tf.constant(np.float32(0.1), x.dtype), lambda x: x / 10, SINGLE),
        (lambda x: x + float(np.float32(1 / 3)), lambda x: x + 1 / 3, SINGLE),
        (in_a_loop, lambda x: x / 1000, SINGLE),
    ],
    ids=["exp", "sum", "bfloat16", "float32", "constant", "scalar", "array", "wide constant", "Python", "loop"],
)
def test_a_narrower_dtype_inside_counts_by_its_own_roundings(function, true, unit: float, dtype: str) -> None:
    value, off = digits_of(elementwise(function, None, name="narrow", dtypes=BOTH), {"x": X}, dtype)["outputs/y"]
    error = np.abs(value.astype(np.float64) - true(np.array(X, dtype).astype(np.float64)))
    assert (error <= 2 * off).all()
    assert (off < 30 * unit * np.abs(value)).all()


@pytest.mark.parametrize("constant", [0.375, 12345.0, 1e6, 2.0**-20])
def test_a_constant_that_float32_has_exactly_is_no_rounding(constant: float) -> None:
    op = elementwise(lambda x: x * tf.cast(tf.constant(constant), x.dtype), None, name="exact")
    value, off = digits_of(op, {"x": X})["outputs/y"]
    assert (off < 1e-15 * np.abs(value)).all()


def cancelling(x):
    return (1 - tf.cos(x)) / (x * x)


@pytest.mark.parametrize("function", [cancelling, lambda x: 1.1 * x + cancelling(x)], ids=["alone", "in a sum"])
def test_a_narrow_dtype_has_the_uncertainty_of_the_widest(function) -> None:
    """At 1e-9 both have lost cos x: 1/2 is 0, and its derivative is sin x / x²."""
    found = digits_of(elementwise(function, None, name="lost", dtypes=BOTH), {"x": [1e-9]}, "float32")
    assert found["outputs/y"][1] > 0.5
    value, off = found["gradients/x"]
    assert off > np.abs(value) / 3


def newton(tolerance: float) -> Callable[[Any], Any]:
    """Return the square root, by Newton's method until a step is smaller than the tolerance."""

    def root(x):
        def step(y, _):
            dy = (y * y - x) / (2 * y)
            return y - dy, dy

        def goes_on(_, dy):
            return tf.reduce_max(tf.abs(dy)) > tolerance

        return tf.while_loop(goes_on, step, [x + 1, x + 1], maximum_iterations=20)[0]

    return root


def flagged(x):
    """The same with a flag in place of the step."""

    def step(y, _):
        dy = (y * y - x) / (2 * y)
        return y - dy, tf.reduce_max(tf.abs(dy)) > 0.01

    return tf.while_loop(lambda _, goes_on: goes_on, step, [x + 1, tf.constant(True)])[0]


def steps(x):
    """Steps of Euler's method until a time."""
    return tf.while_loop(lambda t, y: t < 0.99, lambda t, y: (t + 0.125, y + y / 8), [tf.zeros([], x.dtype), x])[1]


def in_numpy(x):
    return tf.ensure_shape(tf.numpy_function(np.exp, [x], x.dtype, stateful=False), x.shape)


def numpy_in_a_loop(x):
    return tf.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, in_numpy(y)), [0, x], [tf.TensorShape([]), x.shape])[
        1
    ]


def of_a_shape(x):
    return tf.sin(x) * tf.cast(tf.size(in_numpy(x)), x.dtype)


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (newton(1e-2), Absent.LOOP),
        (newton(1e-10), Absent.LOOP),
        (newton(1e-15), None),
        (flagged, Absent.LOOP),
        (lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: newton(1e-2)(x), lambda: x), Absent.LOOP),
        (steps, None),
        (in_numpy, Absent.PYTHON),
        (numpy_in_a_loop, Absent.PYTHON),
        (lambda x: in_numpy(newton(1e-2)(x)), Absent.PYTHON),
        (of_a_shape, None),
    ],
)
def test_what_no_rounding_shows_has_a_reason(function, reason: Absent | None, dtype: str) -> None:
    found = digits_of(elementwise(function, None, name="seen", dtypes=BOTH), {"x": X}, dtype, last="outputs")
    estimate: Any = found["outputs/y"][1]
    assert estimate is reason if reason else (estimate > 0).all()


def test_an_op_that_cannot_run_with_errors_has_the_difference() -> None:
    """The exponential of a matrix has a branch with a gradient."""
    op = rows(tf.linalg.expm, None, name="expm", dtypes=BOTH, out=("N", "M"))
    value, off = digits_of(op, {"x": [[0.0, 0.3], [0.0, 0.0]]}, "float32")["outputs/y"]
    assert (np.abs(value - [[1, np.float32(0.3)], [0, 1]]) <= off + SINGLE / 2).all()
