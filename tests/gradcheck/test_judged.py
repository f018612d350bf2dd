"""Which numbers are judged: right ops whose numbers look unknown pass, and what no direction shows is named."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from ops import Array, Example, Input, InvalidInput, Op, Output, Tensor, custom_gradient
from tests.gradcheck.checking import entries, report
from tests.gradcheck.hard import HARD
from tests.gradcheck.wrong.making import BOTH, WIDE, made, rows

pytestmark = pytest.mark.slow

KNOWN = {
    "a second order of exactly 0": "upper_part",
    "a second order that underflows": "quotient_of_extremes",
    "numbers that are small at one point": "naive_logsumexp",
    "numbers in far smaller units at one point": "sum_of_uneven_cubes",
}
UNITS = (1.0, 1.0, 1e-12, 1e12)


@pytest.mark.parametrize("name", KNOWN.values(), ids=KNOWN)
def test_a_right_op_is_not_inconclusive(name: str) -> None:
    document = report(HARD[name].op, checks=["derivative", "second", "adjoint"])
    assert document["verdict"] == "pass", document["sentence"]


def test_products_that_are_0_at_the_level_of_rounding_are_judged() -> None:
    def vjp(x: Tensor, dy: Tensor) -> Tensor:
        s = tf.nn.softmax(x)
        return s * (dy - tf.reduce_sum(s * dy, axis=-1, keepdims=True))

    function = custom_gradient(tf.nn.softmax, vjp)
    op = rows(function, None, name="large_logits", dtypes=BOTH, slot={"domain": (-500.0, 500.0)})
    assert report(op, checks=["adjoint"])["verdict"] == "pass"


def three_or_four(inputs: Mapping[str, Array], attrs: Any) -> None:
    if inputs["x"].shape[-1] not in (3, 4):
        raise InvalidInput("x", "another number", expected="3 or 4 numbers", got="another")


def hidden_at_four(factor: float) -> Op:
    """Return Σ s x², where the third of four numbers is in a tiny unit, and of three it is not."""

    def units(x: Tensor) -> Tensor:
        s = tf.constant(UNITS, x.dtype)
        return tf.where(tf.shape(x)[-1] == 4, s, tf.ones_like(s))[: tf.shape(x)[-1]]

    def forward(x: Tensor) -> Tensor:
        return tf.reduce_sum(x * x * units(x), axis=-1)

    def vjp(x: Tensor, dy: Tensor) -> Tensor:
        s = units(x)
        return 2 * x * dy[..., None] * tf.where(s < 1e-6, s * tf.constant(factor, x.dtype), s)

    return made(
        custom_gradient(forward, vjp),
        lambda x: np.sum(x * x * (np.array(UNITS) if x.shape[-1] == 4 else 1.0), axis=-1),
        [Input("x", WIDE, ("...", "N"))],
        name="hidden_at_four",
        outputs=(Output("y", WIDE, ("...",)),),
        batching="leading_axes",
        validate=three_or_four,
        examples=(Example("four", {"x": [1.0, 2.0, 3.0, 4.0]}), Example("three", {"x": [1.0, 2.0, 3.0]})),
    )


@pytest.mark.parametrize("factor", [1.0, -1000.0])
def test_a_number_that_arrays_of_another_shape_show_is_not_judged_by_them(factor: float) -> None:
    document = report(hidden_at_four(factor), checks=["derivative"])
    (entry,) = entries(document, "derivative", "inconclusive")
    assert "dx[2] can be judged nowhere" in entry["sentence"]
