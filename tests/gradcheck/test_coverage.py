"""A verdict "pass" means that enough was compared."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.autodiff.binding import bind
from app.gradcheck.causes import merge, shares, verdict_on_op
from app.gradcheck.outside import NOTE
from app.gradcheck.verify import verify
from app.tensors.json import decode
from ops import Array, custom_gradient
from pullback.documents import written
from pullback.findings import Coverage
from pullback.gradcheck.number_comparison import Comparison, Tolerances
from pullback.gradcheck.numeric import Slopes, Status
from pullback.gradcheck.slope_comparison import add_slopes
from pullback.gradcheck.verdict import Finding, Subject, is_enough, worst_verdict
from tests.gradcheck.checking import CPU, entries, failed, report
from tests.gradcheck.hard.matrices import POSITIVE, of_matrix, random_positive
from tests.gradcheck.wrong.hidden import FAR, energy, op, scaled
from tests.gradcheck.wrong.making import BOTH, elementwise, rows

pytestmark = pytest.mark.slow

HERE = Subject("derivative", 1, "y", "x", dtype="float64")


@pytest.mark.parametrize(
    ("points", "inconclusive", "enough"),
    [
        (100, {}, True),
        (100, {"no digits": 95}, True),
        (100, {"no digits": 60, "estimates differ": 36}, False),
        (100, {"constant nearby": 99}, False),
        (100, {"kink": 60, "jump": 30, "not finite": 5, "underflow": 4}, True),
        (100, {"kink": 90, "no digits": 9}, True),
        (100, {"kink": 100}, False),
        (1, {}, True),
    ],
)
def test_one_in_twenty_of_the_numbers_that_have_an_expected_value(points: Any, inconclusive: Any, enough: Any) -> None:
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
def test_the_verdict_on_many(verdicts: Any, verdict: Any) -> None:
    assert worst_verdict(verdicts) == verdict


def finding(verdict: Any, subject: Any = HERE, **counts: Any) -> Any:
    return Finding(subject, verdict, "", **counts).entry({})


def test_a_slot_that_is_compared_with_some_attributes_passes() -> None:
    other = Subject("derivative", 1, "y", "w", dtype="float64")
    assert verdict_on_op([finding("inconclusive"), finding("pass")]) == "pass"
    assert verdict_on_op([finding("inconclusive"), finding("pass", other)]) == "inconclusive"
    assert verdict_on_op([finding("inconclusive"), finding("pass"), finding("fail", other)]) == "fail"


def test_shares_are_sums_by_check_order_and_dtype() -> None:
    found = [
        finding("pass", points=10, inconclusive={"kink": 4}, digits={12: 4, 3: 1}),
        finding("pass", digits={12: 1}, points=1),
        finding("inconclusive", Subject("derivative", 1, dtype="float64"), points=5, inconclusive={"no digits": 5}),
        finding("pass", Subject("second", 2, dtype="float64"), points=3),
        finding("skipped", Subject("modes", 2, dtype="float64"), points=3),
    ]
    assert shares(found) == [
        Coverage("derivative", 1, "float64", points=16, compared=7, digits={3: 1, 12: 5}),
        Coverage("second", 2, "float64", points=3, compared=3),
    ]


def test_findings_of_one_cause_are_one_entry_with_their_sums() -> None:
    counts = [
        {"points": 10, "evaluations": 3, "inconclusive": {"kink": 4}, "digits": {12: 4}},
        {"points": 5, "evaluations": 2, "inconclusive": {"kink": 1, "jump": 1}, "digits": {12: 1, 3: 1}},
    ]
    places = [replace(HERE, dtype=dtype) for dtype in ("float64", "float32")]
    findings = [Finding(p, "fail", f"bad in {p.dtype}", **more) for p, more in zip(places, counts, strict=True)]
    [found] = written(merge([each.entry({}, "cpu", 0.5) for each in findings]))
    assert (found["points"], found["compared"], found["evaluations"], found["seconds"]) == (15, 9, 5, 1.0)
    assert (found["inconclusive"], found["digits"]) == ({"kink": 5, "jump": 1}, {"12": 5, "3": 1})
    assert [place["dtype"] for place in found["places"]] == ["float64", "float32"]


def compared(analytic: Any, numeric: Any, allowed: Any, **more: Any) -> Any:
    comparison = Comparison(HERE)
    comparison.add(np.array(analytic), np.array(numeric), np.array(allowed), **more)
    return comparison


@pytest.mark.parametrize(
    ("analytic", "bar", "scale", "digits", "inconclusive"),
    [
        (2e-9, 1e-3, 2e-9, {}, {"no digits": 1}),
        (2e-9, 1e-3, 0.0, {}, {"no digits": 1}),
        (2e-9, 1e-11, 2e-9, {2: 1}, {}),
        # What is left of terms that cancel, and the zeros of a mask.
        (1e-17, 1e-15, 1.0, {15: 1}, {}),
        (0.0, 1e-12, 1.0, {12: 1}, {}),
        (1e-310, 1e-309, 0.0, {}, {"underflow": 1}),
    ],
)
def test_a_number_under_its_error_bar_is_inconclusive(
    analytic: Any, bar: Any, scale: Any, digits: Any, inconclusive: Any
) -> None:
    found = compared([analytic], [analytic * (1 + 1e-12)], [bar], scale=np.array([scale]))
    assert (dict(found.digits), dict(found.inconclusive)) == (digits, inconclusive)


@pytest.mark.parametrize(
    ("analytic", "numeric", "bar", "scale", "inconclusive"),
    [
        # Narrow numbers that cancel to a few roundings of their terms, as a float64 of the same function shows.
        ([2e-7], [1e-14], 1e-3, [1.0], {}),
        ([2e-7], [1e-14], 1e-2, [1.0], {"no digits": 1}),
        ([2e-5], [1e-14], 1e-3, [1.0], {"no digits": 1}),
        ([0.0], [2e-5], 1e-3, [1.0], {"no digits": 1}),
        ([2e-7], [1e-14], 1e-3, [1e-3], {"no digits": 1}),
        # The number beside them says nothing of their terms.
        ([2e-7, 1.0], [1e-14, 1.0], 1e-3, None, {"no digits": 1}),
    ],
)
def test_a_narrow_number_that_cancels_counts_as_zero(
    analytic: Any, numeric: Any, bar: Any, scale: Any, inconclusive: Any
) -> None:
    found = Comparison(Subject("derivative", 1, input="x", dtype="float32"))
    status = np.array([Status.NO_DIGITS, Status.OK][: len(numeric)], object)
    slopes = Slopes(np.array(numeric), np.full(len(numeric), 1e-13), status, 1)
    terms = None if scale is None else np.array(scale)
    add_slopes(found, np.array(analytic), slopes, np.full(len(numeric), bar), status=status, scale=terms)
    assert (dict(found.inconclusive), found.wrong) == (inconclusive, 0)


@pytest.mark.parametrize(
    ("analytic", "numeric", "bar", "digits", "inconclusive"),
    [
        # Within the numeric bar, within a hundredth of the numbers, and within a bar that leaves no digit.
        (1e-9, 1e-9, 1e-3, {5: 1}, {}),
        (1.0, 1.001, 2e-3, {2: 1}, {}),
        (0.0, 1e-9, 1e-3, {}, {"no digits": 1}),
    ],
)
def test_a_slope_under_the_bar_of_rounding_is_inconclusive(
    analytic: Any, numeric: Any, bar: Any, digits: Any, inconclusive: Any
) -> None:
    found, ok = Comparison(HERE), np.array([Status.OK], object)
    slopes = Slopes(np.array([numeric]), np.array([1e-15]), ok, 1)
    add_slopes(found, np.array([analytic]), slopes, np.array([bar]), status=ok)
    assert (dict(found.digits), dict(found.inconclusive), found.wrong) == (digits, inconclusive, 0)


def test_a_number_that_is_judged_nowhere_is_no_pass() -> None:
    found = compared(
        [1.0, 1e-9],
        [1.0, 1.1e-9],
        [1e-12, 1e-3],
        scale=np.array([1.0, 1e-9]),
        indices=[((2,), (0,)), ((2,), (1,))],
        are_needed=True,
    )
    assert found.verdict == "inconclusive"
    assert "but dx[1] can be judged nowhere" in found.finding("dx", "another").sentence
    one = {"scale": np.array([1e-9]), "indices": [((2,), (1,))]}
    found.add(np.array([1e-9]), np.array([1e-9]), np.array([1e-13]), **one)
    assert found.verdict == "pass"
    found.add(np.array([2e-9]), np.array([1e-9]), np.array([1e-13]), **one)
    assert found.verdict == "fail"


def test_a_sentence_says_that_most_numbers_are_inconclusive() -> None:
    found = compared([1.0, 1e-9, 1e-9], [1.0, 2e-9, 2e-9], [1e-3] * 3, scale=np.array([1.0, 0.0, 0.0]))
    assert "at 1 point; mostly inconclusive at 2 points (no digits)" in found.finding("dx", "another").sentence


def test_a_gradient_that_cannot_be_compared_is_not_called_right() -> None:
    """The value is x and noise of a tenth: no numeric derivative has a digit."""
    rough = custom_gradient(lambda x: x + 0.1 * tf.math.floormod(4e4 * tf.sin(1e9 * x), 1.0), lambda x, dy: dy + 0 * x)
    document = report(elementwise(rough, None, name="rough"), checks=["derivative"])
    assert document["verdict"] == "inconclusive"
    [row] = [row for row in document["coverage"] if row["check"] == "derivative"]
    assert row["compared"] < 0.02 * row["points"]


FLOOR = custom_gradient(tf.floor, lambda x, dy: tf.zeros_like(x) * dy)


@pytest.mark.parametrize("function", [tf.sign, FLOOR, tf.nn.relu, lambda x: tf.cast(x > 0, x.dtype) * x])
def test_steps_and_kinks_are_compared_enough(function: Any) -> None:
    document = report(elementwise(function, None, name="steps"), checks=["derivative", "second"], orders=(1,))
    assert document["verdict"] == "pass", document["checks"]


def wrong_where_equal(a: Any, dy: Any) -> Any:
    return 2 * a * dy + tf.cast(tf.reduce_all(a == a[..., :1, :1]), a.dtype)


def factor(a: Any) -> Any:
    return tf.linalg.cholesky((a + tf.linalg.matrix_transpose(a)) / 2)


def factor_reference(a: Array) -> Array:
    return np.linalg.cholesky((a + a.T) / 2)


def test_what_is_wrong_at_points_that_sample_does_not_draw_is_a_note() -> None:
    no_reference: Any = None
    function = custom_gradient(tf.square, wrong_where_equal)
    op = of_matrix("squares", function, no_reference, a=POSITIVE, sample=random_positive, dtypes=("float64",))
    document = report(op, checks=["modes", "value", "derivative", "finite"], orders=(1,))
    assert failed(document) == []
    assert document["verdict"] == "pass"
    assert any(NOTE in entry["sentence"] for entry in document["checks"])


def test_what_is_wrong_at_a_drawn_point_fails_as_ever() -> None:
    def doubled(a: Any) -> Any:
        return (2.0 if tf.executing_eagerly() else 1.0) * factor(a)

    op = of_matrix("factor", doubled, factor_reference, a=POSITIVE, sample=random_positive, dtypes=("float64",))
    assert failed(report(op, checks=["modes"], orders=(1,), modes=("eager",))) == ["modes"]


def test_an_op_of_half_precision_is_compared_with_a_wider_dtype() -> None:
    def off(x: Any) -> Any:
        return 1.02 * tf.exp(x) if x.dtype == tf.float16 else tf.exp(x)

    op = rows(off, np.exp, name="off_in_half", dtypes=("float16",))
    document = report(op)
    assert failed(document) == ["value", "dtypes"]
    assert {entry["dtype"] for entry in document["checks"] if entry["check"] == "derivative"} == {"float64"}
    assert not [e for e in document["checks"] if e["dtype"] == "float64" and (e["reproduce"] or "").startswith("pullb")]


def test_a_function_of_half_precision_alone_is_checked_in_it() -> None:
    def narrow(x: Any) -> Any:
        if x.dtype != tf.float16:
            raise TypeError
        return x * 2

    op = rows(narrow, None, dtypes=("float16",))
    assert entries(report(op, checks=["contract"]), "contract", "pass")


@pytest.mark.parametrize("factor", [1, 1.01, -1000])
def test_a_derivative_under_the_rounding_of_its_output_is_inconclusive(factor: Any) -> None:
    document = report(energy((factor, 1, 1, 1, 1), (1, 1, 1, 1, 1)), checks=["derivative"], orders=(1,))
    assert document["verdict"] == "inconclusive"
    assert "but dx[0], dx[1] can be judged nowhere" in document["checks"][0]["sentence"]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_posted_gradient_that_is_wrong_in_small_units_is_no_pass(dtype: str) -> None:
    units, run = np.array(FAR), {"mode": "graph", "device": CPU["cpu"], "max_elements": 1 << 20}
    square = op("posted", scaled(FAR, (1.0,) * 5), FAR, BOTH)
    point = bind(square, {"x": [1.0, 1.5, 2.0, 2.5, 3.0]}, {}, dtype, decode, **run)
    x = np.asarray(point.inputs["x"])
    verdicts = [
        verify(point, None, {"x": (2 * x * units * np.array([factor, 1, 1, 1, 1])).astype(x.dtype)}, Tolerances())
        for factor in (1, -1000, 1.01, 0)
    ]
    assert [found["verdict"] != "pass" for found in verdicts] == [False, True, True, True]
    assert {found["gradients"]["x"]["elements"] for found in verdicts} == {5}
