"""The mechanism of an op whose page names none: that of the helper, or of what the code of its function names."""

from functools import partial
from typing import Any

import pytest
import tensorflow as tf

from ops import (
    Attrs,
    Example,
    Input,
    Op,
    Output,
    additive,
    custom_gradient,
    multiplicative,
    override,
    symbolic_gradient,
)
from pullback.ops import load_page

PAGE = """
from ops import Example, Input, Op, Output, register_gradient

@register_gradient("{op_type}")
def vjp(op, dy):
    return dy

def forward(x):
    return x

OP = Op("registered", "", None, forward, (Input("x"),), (Output("y"),), "", (Example("one", {{"x": 1.0}}),))
"""


def double(x: Any) -> Any:
    return 2 * x


def weighted(x: Any, *, k: Any) -> Any:
    return k * x


def vjp(x: Any, dy: Any) -> Any:
    return 2 * dy


def in_c(x: Any, dy: Any) -> Any:
    return symbolic_gradient(double, x, dy)


def straight_through(x: Any) -> Any:
    return x + tf.stop_gradient(tf.round(x) - x)


def nested(x: Any) -> Any:
    def inner(x: Any) -> Any:
        return straight_through(x)

    return inner(x)


custom = custom_gradient(double, vjp)
TABLE = {"custom": custom, "stopped": straight_through}


@tf.custom_gradient
def plain(x: Any) -> Any:
    return x, double


def of_helper(x: Any) -> Any:
    return additive(tf.sign, tf.tanh)(x)


def scaled(x: Any, *, k: Any) -> Any:
    return k * custom(x)


def chosen(x: Any) -> Any:
    return TABLE["custom"](x)


def recursive(x: Any) -> Any:
    return recursive(x) if x is None else custom(x)


def closed(f: Any) -> Any:
    def twice(x: Any) -> Any:
        return f(f(x))

    return twice


EXPECTED: dict[str, tuple[Any, str]] = {
    "custom_gradient": (custom, "custom_gradient"),
    "a partial": (partial(custom_gradient(weighted, vjp), k=2), "custom_gradient"),
    "tf.custom_gradient": (plain, "custom_gradient"),
    "override": (override({"Sign": double}, tf.sign), "gradient_override_map"),
    "additive": (additive(tf.sign, tf.tanh), "stop_gradient"),
    "multiplicative": (multiplicative(tf.sign, tf.tanh), "stop_gradient"),
    "its gradient in C++": (custom_gradient(double, in_c), "symbolic_gradient"),
    "tf.stop_gradient": (straight_through, "stop_gradient"),
    "functions beside it": (nested, "stop_gradient"),
    "a helper in the code": (of_helper, "stop_gradient"),
    "a made function in the code": (scaled, "custom_gradient"),
    "a made function in a closure": (closed(custom), "custom_gradient"),
    "a function that calls itself": (recursive, "custom_gradient"),
    "several": (chosen, "composition"),
    "none": (double, "composition"),
    "TensorFlow's own": (tf.square, "composition"),
}


class Scale(Attrs):
    k: float = 2.0


def op_of(function: Any, **fields: Any) -> Op:
    attrs = {"attrs": Scale} if function is scaled else {}
    slots = {"inputs": (Input("x"),), "outputs": (Output("y"),), "examples": (Example("one", {"x": 1.0}),)}
    return Op(name="f", summary="", doc=None, function=function, source="", **slots, **attrs, **fields)


@pytest.mark.parametrize(("function", "expected"), EXPECTED.values(), ids=EXPECTED)
def test_the_mechanism_is_inferred(function: Any, expected: str) -> None:
    assert op_of(function).mechanism == expected


def test_a_gradient_that_the_page_registers(tmp_path: Any) -> None:
    page = tmp_path / "registered.py"
    page.write_text(PAGE.format(op_type="PullbackInferredMechanism"))
    assert load_page(page).mechanism == "register_gradient"


def test_what_the_author_says_is_kept() -> None:
    assert op_of(chosen, mechanism="by_attribute").mechanism == "by_attribute"
    assert op_of(custom_gradient(double, in_c), mechanism="custom_gradient").mechanism == "custom_gradient"


@pytest.mark.parametrize("said", ["composition", "stop_gradient", "by_attribute"])
def test_a_contradiction_names_both(said: Any) -> None:
    with pytest.raises(
        ValueError, match=f"op 'f': mechanism: expected 'custom_gradient', .* got '{said}'; leave it out"
    ):
        op_of(custom, mechanism=said)
