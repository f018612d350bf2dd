"""The first order alone: because it alone is requested, or because an op has no second one."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from scipy import special

from app.gradcheck.checks import CHECKS, HIGHER_ORDER, SECOND_ORDER
from ops import FLOATS, Claim, Input, Op, Tensor, custom_gradient, discover, recompute
from tests.gradcheck.checking import entries, failed, report
from tests.gradcheck.hard import HARD
from tests.gradcheck.op_makers import BOTH, WIDE, cube_vjp, elementwise, made
from tests.gradcheck.wrong.first_order import SideAttrs

pytestmark = pytest.mark.slow

REGISTERED = {name: op for name, op in discover().ops.items() if any(dtype in FLOATS for dtype in op.dtypes)}
CHEAP = ("square", "sign", "round_ste")
DECLARED = HARD["igamma_of_both"].op
UNDECLARED = replace(DECLARED, claim=lambda attrs: Claim())
FIRST = set(CHECKS) - set(SECOND_ORDER)
# The op has no cost and no attributes.
SKIPPED = {"cost", "attributes", "sparsity"}
SECOND = set(SECOND_ORDER) - set(HIGHER_ORDER)


@pytest.mark.parametrize(
    "op",
    [pytest.param(op, id=name, marks=() if name in CHEAP else pytest.mark.thorough) for name, op in REGISTERED.items()],
)
def test_the_first_order_alone_passes_for_every_registered_op(op: Op) -> None:
    document = report(op, orders=(1,))
    assert failed(document) == [], [entry["sentence"] for entry in document["checks"] if entry["verdict"] == "fail"]
    assert document["verdict"] in ("pass", "inconclusive")
    assert {entry["check"] for entry in document["checks"]} == FIRST
    assert {entry["order"] for entry in document["checks"]} <= {None, 0, 1}


def test_the_first_order_alone_leaves_out_nothing_else() -> None:
    """Of the entries at both orders, those of the second are missing, and no other."""
    one, both = (report(made(dtypes=("float64", "float32")), orders=orders) for orders in ((1,), (1, 2)))

    def places(document) -> Counter[tuple[object, ...]]:
        fields = ("check", "verdict", "order", "output", "input", "mode", "dtype")
        return Counter(tuple(entry[name] for name in fields) for entry in document["checks"])

    left_out = places(both) - places(one)
    assert not places(one) - places(both)
    assert {order for _, _, order, *_ in left_out} == {2}


def test_an_op_without_a_second_order_passes_the_first_alone() -> None:
    document = report(UNDECLARED, orders=(1,))
    assert document["verdict"] == "pass", document["sentence"]
    assert {entry["check"] for entry in document["checks"] if entry["verdict"] != "pass"} == SKIPPED


def test_a_second_order_that_is_missing_in_tensorflow_is_told_how_to_declare() -> None:
    document = report(UNDECLARED)
    assert failed(document) == ["contract"]
    [wrong] = entries(document, "contract")
    assert wrong["order"] == 2
    assert "IgammaGradA" in wrong["sentence"]
    advice = wrong["sentence"].partition("write claim=")[2].rpartition(": ")[0]
    assert failed(report(replace(UNDECLARED, claim=eval(advice, {"Claim": Claim})))) == []
    assert {place["mode"] for place in wrong["places"]} == {"graph", "eager"}
    passed = {entry["check"] for entry in document["checks"] if entry["verdict"] == "pass"}
    assert passed == FIRST - SKIPPED - {"contract", "dtypes"}
    for check in SECOND:
        [skipped] = entries(document, check, "skipped")
        assert skipped["sentence"] == "not run, because check contract fails at the second order"


def recomputed(keeping_less) -> Op:
    return elementwise(keeping_less(lambda x: tf.sin(x) * x), reference=lambda x: np.sin(x) * x)


def test_a_function_of_tensorflow_that_keeps_less_is_told_of_ours() -> None:
    document = report(recomputed(tf.recompute_grad), checks=["contract"])
    assert "recompute of pullback.ops" in entries(document, "contract")[0]["sentence"]
    assert "Claim" not in entries(document, "contract")[0]["sentence"]
    assert failed(report(recomputed(recompute))) == []


def test_a_declared_second_order_is_said_to_be_missing() -> None:
    document = report(DECLARED)
    assert document["verdict"] == "pass", document["sentence"]
    for check in SECOND:
        [skipped] = entries(document, check, "skipped")
        assert "declares that it has no second order: Claim(second=None)" in skipped["sentence"]
    assert {entry["check"] for entry in document["checks"] if entry["verdict"] == "pass"} == FIRST - SKIPPED - {
        "dtypes"
    }


def test_the_second_order_alone_of_an_op_that_has_none_is_skipped() -> None:
    document = report(DECLARED, orders=(2,), checks=["second", "symmetry", "modes"])
    assert {entry["verdict"] for entry in document["checks"] if entry["check"] in SECOND} == {"skipped"}
    assert failed(document) == []


def test_an_own_second_order_that_fails_is_not_told_to_be_undeclared() -> None:
    def wrong_count(x: Tensor, dy: Tensor, ddx: Tensor) -> Tensor:
        return 6 * x * dy * ddx

    document = report(made(second=wrong_count))
    assert failed(document) == ["contract"]
    assert "Claim(second=None)" not in entries(document, "contract")[0]["sentence"]
    assert entries(document, "derivative", "pass")


def test_a_first_order_that_fails_skips_everything() -> None:
    document = report(made(lambda x, dy: None))
    assert failed(document) == ["contract"]
    assert {entry["verdict"] for entry in document["checks"]} == {"fail", "skipped"}


def fails_at_zero(x: Tensor, dy: Tensor) -> Tensor:
    """The gradient asserts what the op does not."""
    with tf.control_dependencies([tf.debugging.assert_none_equal(x, tf.zeros_like(x))]):
        return cube_vjp(x, dy)


@pytest.mark.thorough
def test_value_judges_forward_alone() -> None:
    """A wrong gradient does not keep a wrong value from being found, and is no fault of the reference."""
    wrong = replace(UNDECLARED, function=lambda a, x: tf.math.igamma(a, x) * (1 + 1e-6))
    assert failed(report(wrong)) == ["contract", "value"]
    right = report(UNDECLARED, checks=["value"])
    [passed] = [entry for entry in right["checks"] if entry["check"] == "value"]
    assert passed["verdict"] == "pass"
    at_zero = elementwise(
        custom_gradient(
            lambda x: x * x * x + tf.where(tf.equal(x, 0), tf.ones_like(x), tf.zeros_like(x)), fails_at_zero
        ),
        reference=lambda x: x**3,
        modes=("graph", "eager", "v1"),
    )
    [found] = entries(report(at_zero, checks=["value"]), "value")
    assert "y" in found["sentence"]
    assert "but the reference is 0" in found["sentence"]


def of_integers(x: Tensor, dy: Tensor) -> Tensor:
    """The gradient accepts integers alone."""
    with tf.control_dependencies([tf.debugging.assert_equal(x, tf.round(x))]):
        return cube_vjp(tf.identity(x), dy)


@pytest.mark.parametrize("size", [3, 5000])
def test_value_passes_where_the_gradient_fails_beside_the_point(size: int) -> None:
    """The rounding of the values is measured at points beside the given one, and of a large input at some numbers."""
    op = made(of_integers, reference=lambda x: x**3, modes=("graph", "eager", "v1"))
    document = report(op, inputs={"x": [float(i % 7 + 1) for i in range(size)]}, checks=["value", "derivative"])
    assert failed(document) == ["derivative"]
    assert entries(document, "value", "pass")


def narrow_first_and_wide_second(x: Tensor, dy: Tensor) -> Tensor:
    """The first order fails in float32, and the second in float64."""
    if x.dtype == tf.float32:
        raise ValueError("no float32")
    return 3 * x * x * dy + 0 * tf.raw_ops.IgammaGradA(a=tf.ones_like(x), x=x * x + 1)


def test_a_first_order_that_fails_in_one_dtype_skips_everything() -> None:
    document = report(made(narrow_first_and_wide_second, dtypes=BOTH))
    assert {entry["order"] for entry in entries(document, "contract")} == {1, 2}
    assert {entry["verdict"] for entry in document["checks"]} == {"fail", "skipped"}


def test_a_jvp_that_tensorflow_lacks_is_skipped() -> None:
    """The vjp calls a kernel with the cotangent, which has no gradient in it."""

    def vjp(x: Tensor, dy: Tensor) -> Tensor:
        product = tf.raw_ops.IgammaGradA(a=dy * dy + 1, x=tf.ones_like(dy))
        return tf.cos(x) * dy + 0 * product

    op = elementwise(custom_gradient(tf.sin, vjp), claim=lambda attrs: Claim(second=None))
    document = report(op)
    [skipped] = entries(document, "adjoint", "skipped")
    assert "TensorFlow has no jvp" in skipped["sentence"]
    assert failed(document) == []


@pytest.mark.thorough
def test_the_claim_may_lack_the_second_order_for_some_attributes_only() -> None:
    op = elementwise(
        lambda x, *, smooth: tf.math.igamma(2 + 0 * x, x) if not smooth else tf.sin(x),
        reference=lambda x, *, smooth: (
            special.gammainc(2.0, x) if not smooth else special.sindg(x * 180 / 3.141592653589793)
        ),
        attrs=SideAttrs,
        claim=lambda attrs: Claim() if attrs.smooth else Claim(second=None),
        inputs=(Input("x", WIDE, domain=(0.5, 3.0)),),
    )
    document = report(replace(op, examples=(replace(op.examples[0], inputs={"x": [1.0]}),)))
    assert {entry["check"] for entry in entries(document, "second", "skipped")} == {"second"}
    assert entries(document, "second", "pass")
    assert failed(document) == []
