"""A verdict "pass" means that enough was compared."""

import numpy as np
import pytest
import tensorflow as tf

from app.gradcheck.coverage import shares, verdict_on_op
from app.gradcheck.outside import NOTE
from pullback.gradcheck.verdict import Finding, Place, is_enough, worst_verdict
from tests.gradcheck.checking import entries, failed, report
from tests.gradcheck.hard.making import handwritten
from tests.gradcheck.hard.matrices import POSITIVE, of_matrix, random_positive
from tests.gradcheck.wrong.making import elementwise, rows

HERE = Place("derivative", 1, "y", "x", dtype="float64")


@pytest.mark.parametrize(
    ("points", "inconclusive", "enough"),
    [
        (100, {}, True),
        (100, {"no digits": 98}, True),
        (100, {"no digits": 60, "estimates differ": 39}, False),
        (100, {"constant nearby": 99}, False),
        (100, {"kink": 60, "jump": 30, "not finite": 5, "underflow": 4}, True),
        (100, {"kink": 90, "no digits": 9}, True),
        (100, {"kink": 100}, False),
        (1, {}, True),
    ],
)
def test_one_in_fifty_of_the_numbers_that_have_an_expected_value_is_enough(points, inconclusive, enough) -> None:
    assert is_enough(points, inconclusive) == enough


@pytest.mark.parametrize(
    ("verdicts", "verdict"),
    [
        (["pass", "skipped"], "pass"),
        (["pass", "inconclusive"], "inconclusive"),
        (["inconclusive", "error", "pass"], "error"),
        (["pass", "fail", "error"], "fail"),
        (["skipped"], "inconclusive"),
        ([], "inconclusive"),
    ],
)
def test_the_verdict_on_many(verdicts, verdict) -> None:
    assert worst_verdict(verdicts) == verdict


def finding(verdict, place=HERE, **counts):
    return Finding(place, verdict, "", **counts).document()


def test_a_slot_that_is_compared_with_some_attributes_passes() -> None:
    other = Place("derivative", 1, "y", "w", dtype="float64")
    assert verdict_on_op([finding("inconclusive"), finding("pass")]) == "pass"
    assert verdict_on_op([finding("inconclusive"), finding("pass", other)]) == "inconclusive"
    assert verdict_on_op([finding("inconclusive"), finding("pass"), finding("fail", other)]) == "fail"


def test_shares_are_sums_by_check_order_and_dtype() -> None:
    found = [
        finding("pass", points=10, inconclusive={"kink": 4}),
        finding("inconclusive", Place("derivative", 1, dtype="float64"), points=5, inconclusive={"no digits": 5}),
        finding("pass", Place("second", 2, dtype="float64"), points=3),
        finding("skipped", Place("modes", 2, dtype="float64"), points=3),
    ]
    assert shares(found) == [
        {"check": "derivative", "order": 1, "dtype": "float64", "points": 15, "compared": 6},
        {"check": "second", "order": 2, "dtype": "float64", "points": 3, "compared": 3},
    ]


def test_a_gradient_that_cannot_be_compared_is_not_called_right() -> None:
    """The value is x and noise of a tenth: no numeric derivative has a digit."""
    rough = handwritten(lambda x: x + 0.1 * tf.math.floormod(4e4 * tf.sin(1e9 * x), 1.0), lambda x, dy: dy + 0 * x)
    document = report(elementwise(rough, None, name="rough"), checks=["derivative"])
    assert document["verdict"] == "inconclusive"
    [row] = [row for row in document["coverage"] if row["check"] == "derivative"]
    assert row["compared"] < 0.02 * row["points"]


FLOOR = handwritten(tf.floor, lambda x, dy: tf.zeros_like(x) * dy)


@pytest.mark.parametrize("function", [tf.sign, FLOOR, tf.nn.relu, lambda x: tf.cast(x > 0, x.dtype) * x])
def test_steps_and_kinks_are_compared_enough(function) -> None:
    document = report(elementwise(function, None, name="steps"), checks=["derivative", "second"], orders=(1,))
    assert document["verdict"] == "pass", document["checks"]


def factor(a):
    return tf.linalg.cholesky((a + tf.linalg.matrix_transpose(a)) / 2)


def factor_reference(a):
    return np.linalg.cholesky((a + a.T) / 2)


def test_what_is_wrong_at_points_that_sample_does_not_draw_is_a_note() -> None:
    op = of_matrix("factor", factor, None, a=POSITIVE, sample=random_positive, dtypes=("float64",))
    document = report(op, checks=["modes", "value", "derivative", "finite"], orders=(1,))
    assert failed(document) == []
    assert document["verdict"] == "pass"
    assert any(NOTE in entry["sentence"] for entry in document["checks"])


def test_what_is_wrong_at_a_drawn_point_fails_as_ever() -> None:
    def doubled(a):
        return (2.0 if tf.executing_eagerly() else 1.0) * factor(a)

    op = of_matrix("factor", doubled, factor_reference, a=POSITIVE, sample=random_positive, dtypes=("float64",))
    assert failed(report(op, checks=["modes"], orders=(1,), modes=("eager",))) == ["modes"]


def test_an_op_of_half_precision_is_compared_with_a_wider_dtype() -> None:
    def off(x):
        return 1.02 * tf.exp(x) if x.dtype == tf.float16 else tf.exp(x)

    op = rows(off, np.exp, name="off_in_half", dtypes=("float16",))
    document = report(op)
    assert failed(document) == ["value", "dtypes"]
    assert {entry["dtype"] for entry in document["checks"] if entry["check"] == "derivative"} == {"float64"}
    assert not [e for e in document["checks"] if e["dtype"] == "float64" and (e["reproduce"] or "").startswith("pullb")]


def test_a_function_of_half_precision_alone_is_checked_in_it() -> None:
    def narrow(x):
        if x.dtype != tf.float16:
            raise TypeError
        return x * 2

    op = rows(narrow, None, dtypes=("float16",))
    assert entries(report(op, checks=["contract"]), "contract", "pass")
