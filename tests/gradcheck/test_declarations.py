"""Doubtful declarations get a note, which fails with ``strict_claims``; right ones get none."""

from typing import Any

import pytest
import tensorflow as tf
from pydantic import Field

from app.gradcheck.options import Options
from ops import Attrs, Example, Function, Input, Op, custom_gradient, discover
from tests.gradcheck.checking import CPU, entries, failed, planned, report
from tests.gradcheck.hard import HARD
from tests.gradcheck.wrong.making import WIDE, elementwise, made, rows

pytestmark = pytest.mark.slow

FIXED = (Input("x", WIDE), Input("z", WIDE, differentiable=False))


class Slope(Attrs):
    """The slope of a line below 0."""

    slope: float = Field(default=1.0, ge=0, le=2)


def of_x(function: Function, **slot: Any) -> Op:
    return elementwise(function, None, slot=slot, name="planted")


def of_rows(function: Function, **slot: Any) -> Op:
    return rows(function, None, slot=slot, out=("N",), name="planted")


def of_two(function: Function) -> Op:
    return made(function, None, FIXED, name="planted", batching="elementwise")


def norm(x: Any) -> Any:
    squares = tf.reduce_sum(x * x, -1)
    is_zero = squares == 0
    return tf.where(is_zero, tf.zeros_like(squares), tf.sqrt(tf.where(is_zero, tf.ones_like(squares), squares)))


WRONG = {
    "a kink of a parabola": (of_x(tf.square, kinks=(0.0,)), "x declares a kink at 0"),
    "a kink beside that of relu": (of_x(tf.nn.relu, kinks=(0.0, 1.0)), "x declares a kink at 1"),
    "a pole of tanh": (of_x(tf.tanh, poles=(0.0,)), "x declares a pole at 0"),
    "a pole at a distance from that of 1/x": (of_x(tf.math.reciprocal, poles=(0.0, 2.0)), "x declares a pole at 2"),
    "a kink of a sum of squares": (of_rows(lambda x: tf.reduce_sum(x * x, -1), kinks=(0.0,)), "x declares a kink at 0"),
    "a factor without a gradient": (
        of_two(custom_gradient(lambda x, z: x * z, lambda x, z, dy: (dy * z, None))),
        "z is declared not differentiable",
    ),
}
RIGHT = {
    "relu": of_x(tf.nn.relu, kinks=(0.0,)),
    "a kink of the second order": of_x(lambda x: x * tf.abs(x), kinks=(0.0,)),
    "a kink of the third order": of_x(lambda x: x * x * tf.abs(x), kinks=(0.0,)),
    "a kink at a third, to three digits": of_x(lambda x: 1 + tf.abs(x - 1 / 3), kinks=(0.333,)),
    "a gradient that stops beyond 1": of_x(
        custom_gradient(lambda x: 2 * x, lambda x, dy: tf.where(tf.abs(x) <= 1, 2 * dy, 0 * dy)), kinks=(-1.0, 1.0)
    ),
    "a reciprocal": of_x(tf.math.reciprocal, poles=(0.0,)),
    "a root": of_x(tf.sqrt, domain=(0.0, 4.0), poles=(0.0,)),
    "a norm of rows": of_rows(norm, kinks=(0.0,)),
    "a product with one kink": of_rows(lambda x: tf.reduce_prod(tf.nn.relu(x), -1), kinks=(0.0,)),
    "a kink that shows in one column alone": of_rows(
        lambda x: tf.abs(x[:, 0]) * tf.nn.relu(tf.abs(x[:, 1]) - 1), kinks=(0.0,)
    ),
    "a threshold": of_two(lambda x, z: tf.where(x > z, x, 2 * x)),
    "an input that is stopped nowhere, but moves nothing": of_two(lambda x, z: x * x + 0 * z),
    "leaky relu, whose example has slope 1": elementwise(
        lambda x, *, slope: tf.where(x > 0, x, tf.cast(slope, x.dtype) * x),
        None,
        slot={"kinks": (0.0,)},
        attrs=Slope,
        examples=(Example("line", {"x": [1.0, -2.0]}, {"slope": 1.0}),),
        name="leaky",
    ),
}


def noted(document: dict[str, Any]) -> list[str]:
    return [entry["sentence"] for entry in document["checks"] if entry["note"]]


@pytest.mark.parametrize("name", WRONG)
def test_a_doubtful_declaration_is_a_note_and_fails_if_it_is_strict(name: str) -> None:
    op, words = WRONG[name]
    document = report(op, checks=["declarations"], modes=("graph",))
    [sentence] = noted(document)
    assert sentence.startswith(words)
    assert failed(document) == []
    assert "1 note" in document["sentence"]
    strict = report(op, checks=["declarations", "derivative"], modes=("graph",), strict_claims=True)
    assert [entry["sentence"] for entry in entries(strict, "declarations") if entry["note"]] == [sentence]
    assert failed(strict) == ["declarations"]
    assert entries(strict, "derivative", "pass"), "a doubtful declaration must not stop the other checks"


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_declaration_gets_no_note(name: str) -> None:
    assert noted(report(RIGHT[name], checks=["declarations"], modes=("graph",))) == []


def test_no_right_op_has_a_note_on_a_kink_or_a_pole() -> None:
    ops = (*(hard.op for hard in HARD.values()), *discover().ops.values())
    for op in (op for op in ops if any(slot.kinks or slot.poles for slot in op.inputs)):
        result, steps = planned(op, Options(CPU), checks=["declarations"])
        for step in steps:
            if step.check == "declarations":
                step.run(lambda: None)
        assert [sentence for sentence in noted(result.document()) if "declares a" in sentence] == [], op.name
