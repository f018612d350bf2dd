"""``verify`` holds gradients to the rounding of their dtype, whatever their size."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.autodiff.binding import bind
from app.gradcheck.verify import verify
from app.tensors.dtypes import DTYPES
from app.tensors.json import decode
from ops import FLOATS, Op, custom_gradient
from pullback.gradcheck.number_comparison import Tolerances
from tests.gradcheck.wrong.making import elementwise, rows

X = np.linspace(-2.5, 2.5, 64)


def verdict(op: Op, x: Any, dtype: str, gradient: Any, cotangents: Any = None) -> str:
    run = {"mode": "graph", "device": "/device:CPU:0", "max_elements": 1 << 20}
    point = bind(op, {"x": np.asarray(x).tolist()}, {}, dtype, decode, **run)
    kind = DTYPES[dtype].numpy
    dys = None if cotangents is None else {"y": np.asarray(cotangents).astype(kind)}
    return verify(point, dys, {"x": np.asarray(gradient).astype(kind)}, Tolerances())["verdict"]


def rounded(x: Any, dtype: str) -> Any:
    return np.asarray(x).astype(DTYPES[dtype].numpy).astype(np.float64)


@pytest.mark.parametrize(("dtype", "off"), [("float16", 1.02), ("bfloat16", 1.1), ("float32", 1 + 1e-5)])
def test_some_units_in_the_last_place_are_found(dtype: str, off: float) -> None:
    op = elementwise(tf.exp, None, name="planted", dtypes=FLOATS)
    x = rounded(X, dtype)
    assert verdict(op, x, dtype, np.exp(x)) == "pass"
    assert verdict(op, x, dtype, off * np.exp(x)) == "fail"


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_gradient_that_has_no_digits_left_passes(dtype: str) -> None:
    """1 - tanh² at 8 is 0 in narrow dtypes."""
    op = elementwise(tf.tanh, None, name="planted", dtypes=FLOATS)
    x, y = np.full(4, 8.0), rounded(np.tanh(8.0), dtype)
    assert verdict(op, x, dtype, np.full(4, rounded(1 - y * y, dtype))) == "pass"


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_tiny_and_huge_gradients_are_held_to_their_digits(size: float) -> None:
    op = elementwise(lambda x: size * x**3, None, name="planted", dtypes=("float64", "float32"))
    assert verdict(op, X, "float64", 3 * size * X**2) == "pass"
    assert verdict(op, X, "float64", 3.000001 * size * X**2) == "fail"
    assert verdict(op, X, "float64", 0 * X) == "fail"


def test_0_for_the_tail_of_an_exponential_fails() -> None:
    planck = custom_gradient(lambda x: x**3 / tf.math.expm1(x), lambda x, dy: dy * (3 * x**2 - x**3) * tf.exp(-x))
    op = elementwise(planck, None, name="planted", slot={"domain": (30.0, 700.0)})
    x = np.array([600.0])
    assert verdict(op, x, "float64", (3 * x**2 - x**3) / np.expm1(x)) == "pass"
    assert verdict(op, x, "float64", [0.0]) == "fail"


def test_0_for_a_number_under_the_range_of_the_dtype_passes() -> None:
    op = elementwise(lambda x: tf.exp(-x), None, name="planted", dtypes=("float64", "float32"))
    assert verdict(op, [600.0], "float32", [0.0]) == "pass"


@pytest.mark.parametrize(("off", "expected"), [(1.0, "pass"), (1.02, "fail")])
def test_rows_and_cotangents_in_half_precision(off: float, expected: str) -> None:
    op = rows(tf.nn.softmax, None, name="planted", dtypes=FLOATS)
    x, dy = rounded([[0.5, -1.25, 2.0]], "float16"), rounded([[1.5, -0.75, 0.25]], "float16")
    y = np.exp(x) / np.exp(x).sum()
    assert verdict(op, x, "float16", off * y * (dy - (y * dy).sum()), dy) == expected
