"""Ops that refuse all numbers outside of their domain: slopes at its ends are those of one side."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.autodiff.binding import bind
from app.autodiff.point import Point
from app.gradcheck.numeric_derivative import Wanted, numeric
from app.tensors.json import decode
from ops import Example, Input, InvalidInput, Op, Output
from pullback.gradcheck.numeric import slopes
from tests.gradcheck.checking import CPU, failed, report
from tests.gradcheck.op_makers import WIDE, elementwise

UNIT = {"domain": (0.0, 1.0)}
KINKS = {"domain": (0.0, 1.0), "kinks": (0.25, 0.5, 0.75)}
TABLE = np.array([0.0, 0.3, 0.5, 1.2, 0.7])
CELLS = len(TABLE) - 1


def refused(inputs: Any, attrs: Any) -> None:
    """Refuse numbers outside of the domain."""
    del attrs
    if not ((inputs["x"] >= 0) & (inputs["x"] <= 1)).all():
        raise InvalidInput("x", "outside of the table", expected="0 to 1", got="others")


def within(x: Any) -> Any:
    """Return x, which must be from 0 to 1."""
    with tf.control_dependencies([tf.debugging.assert_non_negative(x), tf.debugging.assert_non_negative(1 - x)]):
        return tf.identity(x)


def smooth(x: Any) -> Any:
    return tf.sin(3 * within(x)) + x * x


def of_rows(x: Any) -> Any:
    return tf.reduce_sum(smooth(x) * tf.reverse(x, [-1]), axis=-1)


def cell(x: Any) -> tuple[Any, Any, Any]:
    """Return both ends of the cell of a table that x is in, and how far x is in it."""
    at = within(x) * CELLS
    i = tf.minimum(tf.cast(tf.floor(at), tf.int32), CELLS - 1)
    table = tf.constant(TABLE, x.dtype)
    return tf.gather(table, i), tf.gather(table, i + 1), at - tf.cast(i, x.dtype)


def looked_up(x: Any) -> Any:
    low, high, part = cell(x)
    return low * (1 - part) + high * part


def steep_at(end: float, function: Callable[[Any], Any], slope: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the function with a gradient that is too large by 3 % at one end of its domain."""

    @tf.custom_gradient
    def steep(x: Any) -> Any:
        factor = tf.where(x == end, tf.constant(1.03, x.dtype), tf.ones_like(x))
        return function(x), lambda dy: factor * dy * slope(x)

    return steep


def slope_of_table(x: Any) -> Any:
    low, high, _ = cell(x)
    return (high - low) * CELLS


def slope_of_smooth(x: Any) -> Any:
    return 3 * tf.cos(3 * x) + 2 * x


def relu(of: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return max(x, 0), whose gradient at 0 is 0."""

    @tf.custom_gradient
    def found(x: Any) -> Any:
        return tf.nn.relu(of(x)), lambda dy: tf.where(x > 0, dy, tf.zeros_like(dy))

    return found


def op_of(function: Callable[[Any], Any], slot: dict[str, Any]) -> Op:
    examples = (Example("both ends", {"x": [0.0, 0.3, 1.0]}),)
    return elementwise(function, slot=slot, validate=refused, examples=examples)


ROWS = elementwise(
    of_rows,
    inputs=(Input("x", WIDE, ("N", 3), **UNIT),),
    outputs=(Output("y", WIDE, ("N",)),),
    batching="leading_axis",
    validate=refused,
    examples=(Example("both ends", {"x": [[0.0, 0.5, 1.0]]}),),
)
RIGHT = {
    "smooth": op_of(smooth, UNIT),
    "a table": op_of(looked_up, KINKS),
    "rows": ROWS,
    "a relu that has values beyond": elementwise(
        relu(tf.identity), slot=UNIT, examples=(Example("both ends", {"x": [0.0, 0.3, 1.0]}),)
    ),
}
WRONG = {
    "smooth, at 0": op_of(steep_at(0.0, smooth, slope_of_smooth), UNIT),
    "smooth, at 1": op_of(steep_at(1.0, smooth, slope_of_smooth), UNIT),
    "a relu that refuses what is beyond": op_of(relu(within), UNIT),
    "a table, at 1": op_of(steep_at(1.0, looked_up, slope_of_table), KINKS),
}


@pytest.mark.slow
@pytest.mark.share(5)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_gradient_passes_at_the_ends_of_its_domain(name: str, seed: int) -> None:
    document = report(RIGHT[name], seed=seed, checks=("derivative", "second", "sizes", "linearity", "finite"))
    assert document["verdict"] == "pass", document["checks"]


@pytest.mark.slow
@pytest.mark.share(5)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", WRONG)
def test_a_gradient_that_is_wrong_at_an_end_fails(name: str, seed: int) -> None:
    assert failed(report(WRONG[name], seed=seed, checks=("derivative",))) == ["derivative"]


def point_at(x: list[float]) -> Point:
    """Return a point of the smooth op."""
    run: dict[str, Any] = {"mode": "graph", "device": CPU["cpu"], "max_elements": 1 << 10}
    return bind(RIGHT["smooth"], {"x": x}, {}, "float64", decode, **run)


@pytest.mark.parametrize("order", [1, 2])
def test_a_numeric_derivative_is_one_sided_at_an_end(order: Any) -> None:
    point = bind(
        RIGHT["smooth"],
        {"x": [0.0, 0.3, 1.0]},
        {},
        "float64",
        decode,
        mode="graph",
        device=CPU["cpu"],
        max_elements=1 << 10,
    )
    found = numeric(point, Wanted(order, ("x",)), lambda: None)["derivatives"]["x"]
    x = np.array([0.0, 0.3, 1.0])
    expected = 3 * np.cos(3 * x) + 2 * x if order == 1 else 2 - 9 * np.sin(3 * x)
    assert found["status"] == ["ok"] * 3
    assert np.allclose(found["derivative"], expected, rtol=1e-8)
    assert (np.abs(found["derivative"] - expected) <= found["error_bar"]).all()


@pytest.mark.parametrize("order", [1, 2])
def test_a_numeric_derivative_along_a_direction_stays_within_the_domain(order: Any) -> None:
    point = point_at([0.0, 1.0])
    tangents = {"x": np.array([1.5, -0.5])}
    found = numeric(point, Wanted(order, ("x",), tangents=tangents), lambda: None)["along"]
    x, v = np.array([0.0, 1.0]), tangents["x"]
    expected = (v * (3 * np.cos(3 * x) + 2 * x)).sum() if order == 1 else (v * v * (2 - 9 * np.sin(3 * x))).sum()
    assert abs(found["derivative"] - expected) <= found["error_bar"] <= 1e-6 * abs(expected)


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_slopes_of_one_side_have_error_bars_that_cover_the_error(side: float) -> None:
    """The functions are NaN on the other side."""
    rates = np.array([0.5, 1.0, 3.0, 10.0])

    def functions(t: Any) -> Any:
        return np.where(side * t >= 0, np.exp(rates * t), np.nan)

    found = slopes(functions, np.full(4, 0.25), 2.0**-52, sides=np.full(4, side))
    assert (np.abs(found.value - rates) <= 4 * found.error).all()
    assert (found.error <= 1e-7 * rates).all()
