"""Ways to call an op: for some inputs, for many directions, twice, in a fresh trace, and three times differentiated."""

import itertools
from dataclasses import replace

import pytest
import tensorflow as tf

from app.autodiff.derived import derived
from app.errors import Unprocessable
from app.gradcheck import choices
from app.gradcheck.checks import cost
from app.gradcheck.options import Options
from ops import Claim, Tensor, custom_gradient, discover
from tests.gradcheck.checking import CPU, entries, failed, planned, report
from tests.gradcheck.hard import HARD
from tests.gradcheck.hard.calls import OPS as RIGHT
from tests.gradcheck.op_makers import cube_vjp, elementwise, made
from tests.gradcheck.wrong.calls import OPS, THIRD

pytestmark = pytest.mark.slow

BITS = ["determinism", "retrace"]
ORDER = "TensorFlow adds them in another order"


@pytest.mark.parametrize("name", OPS)
def test_a_fault_in_a_way_to_call_is_found(name: str) -> None:
    planted = OPS[name]
    document = report(planted.op, checks=planted.checks)
    [check] = planted.checks
    assert any(planted.words in entry["sentence"] for entry in entries(document, check)), document["sentence"]


@pytest.mark.parametrize("name", THIRD)
def test_a_third_order_is_checked_if_it_is_requested(name: str) -> None:
    planted = THIRD[name]
    first = report(planted.op, checks=["derivative", "second"])
    assert first["verdict"] == "pass", first["sentence"]
    document = report(planted.op, orders=(3,), checks=planted.checks)
    wrong = entries(document, *planted.checks)
    assert any(planted.words in entry["sentence"] for entry in wrong)
    assert {entry["order"] for entry in wrong} == {3}
    assert any(
        "hvp" in (entry["reproduce"] or "") and f"{planted.op.name}.vjp" in entry["reproduce"] for entry in wrong
    )


@pytest.mark.parametrize(
    "name",
    [
        *(
            pytest.param(name, marks=pytest.mark.thorough)
            for name in ("soft_axes", "newton", "mixed_paths", "trapezoids")
        )
    ],
)
def test_right_ops_pass_at_four_orders(name: str) -> None:
    document = report(HARD[name].op, orders=(1, 2, 3, 4), checks=["higher"])
    assert not failed(document), document["sentence"]
    assert {entry["order"] for entry in entries(document, "higher", "pass")} == {3, 4}


def test_an_order_above_the_second_needs_a_second() -> None:
    document = report(replace(made(), claim=lambda attrs: Claim(second=None)), orders=(1, 2, 3), checks=["higher"])
    [entry] = document["checks"]
    assert entry["verdict"] == "skipped"
    assert "Claim(second=None)" in entry["sentence"]


def test_an_order_above_a_claimed_second_is_judged_without_the_claim() -> None:
    document = report(discover().ops["log1pexp2"], orders=(3,), checks=["finite", "higher"])
    assert not failed(document), document["sentence"]


def test_a_vjp_whose_derivative_is_claimed_as_a_second_order_is_checked_as_that() -> None:
    op = discover().ops["log1pexp2"]
    with pytest.raises(Unprocessable, match=r"expected the checks of op log1pexp2|the derivative of log1pexp2.vjp is"):
        report(derived(op, "log1pexp2.vjp", ["vjp"]))
    assert not failed(report(derived(op, "log1pexp2.jvp", ["jvp"]), checks=["derivative"], modes=("graph",)))


def test_orders_above_the_second_are_left_out_by_default() -> None:
    assert "higher" not in {step.check for step in planned(made(), Options(CPU))[1]}


@pytest.mark.share(2)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.thorough) if name == "chained" else name for name in RIGHT]
)
def test_a_right_op_raises_no_alarm_however_it_is_called(name: str) -> None:
    document = report(RIGHT[name].op, checks=["subset", "directions", "mutation", *BITS])
    assert not failed(document), document["sentence"]


def in_turn():
    """Return a sum of four terms that each trace begins with another one."""
    traces = itertools.count()

    def total(x: Tensor) -> Tensor:
        terms, first = [tf.sin(x), tf.exp(-x * x), x / 3, tf.cos(x) / 7], next(traces) % 4
        return sum(terms[first:] + terms[:first], tf.zeros_like(x))

    return total


def test_another_order_of_terms_is_a_note() -> None:
    document = report(elementwise(in_turn()), checks=["retrace"])
    [entry] = entries(document, "retrace", "pass")
    assert ORDER in entry["sentence"]
    assert "units in the last place of the terms" in entry["sentence"]


def test_equal_bits_have_no_note() -> None:
    sentences = [entry["sentence"] for entry in report(made(), checks=BITS)["checks"]]
    assert len(sentences) == len(BITS)
    assert not any("last place" in sentence for sentence in sentences)


def alternating(size: float):
    """Return x³, of which each second call is larger by this fraction."""
    calls = itertools.count()

    def cubed(x):
        return x * x * x * (1 + size * (next(calls) // 3 % 2))

    def value(x: Tensor) -> Tensor:
        y = tf.numpy_function(cubed, [x], x.dtype)
        y.set_shape(x.shape)
        return y

    return elementwise(custom_gradient(value, cube_vjp), modes=("graph", "eager"))


@pytest.mark.parametrize(("size", "is_found"), [(1e-12, True), (1e-3, True), (2.0**-52, False)])
def test_a_change_beyond_the_rounding_of_the_terms_fails(size: float, *, is_found: bool) -> None:
    assert (failed(report(alternating(size), checks=BITS)) != []) == is_found


def test_the_cost_of_the_vjp_is_told_and_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    [entry] = entries(report(made(), checks=["cost"]), "cost", "skipped")
    assert "times as long as forward" in entry["sentence"]
    assert "is much" not in entry["sentence"] or "more than 10 times" in entry["sentence"]
    monkeypatch.setattr(cost, "MANY", 0.0)
    monkeypatch.setattr(cost, "OVERHEAD_MS", 0.0)
    [entry] = entries(report(made(), checks=["cost"]), "cost", "skipped")
    assert "it may form a Jacobian" in entry["sentence"]


def test_directions_are_checked_with_the_attributes_of_the_first_example() -> None:
    op = discover().ops["scale_gradient"]
    first, other = choices.of_examples(op)[:2]
    assert entries(report(op, attrs=first, checks=["directions"]), "directions", "pass")
    assert [entry["verdict"] for entry in report(op, attrs=other, checks=["directions"])["checks"]] == ["skipped"]


def test_one_input_has_no_subset() -> None:
    [entry] = entries(report(made(), checks=["subset"]), "subset", "skipped")
    assert entry["sentence"] == "only one input is differentiable"


def test_what_is_written_into_leaves_no_other_check_a_meaning() -> None:
    document = report(OPS["an input that forward changes"].op, checks=["derivative"])
    assert failed(document) == ["mutation"]
    [skipped] = entries(document, "derivative", "skipped")
    assert skipped["sentence"] == "not run, because check mutation fails"
