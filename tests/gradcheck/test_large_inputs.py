"""Large inputs of elementwise ops: every number is looked at, and what looks wrong is checked with care."""

import numpy as np
import pytest
import tensorflow as tf

from app.gradcheck import points
from ops import Claim, Derivative, Formula, Op, Surrogate, discover
from tests.gradcheck.checking import entries, failed, report
from tests.gradcheck.hard import HARD
from tests.gradcheck.op_makers import cube, cube_vjp, cube_vjp_vjp, made

# More than one piece of a sweep; three of the numbers are in a band that random numbers would miss.
X = np.linspace(-2, 2, 70_000)
PLACES = range(66_345, 66_348)
BAND = float(X[PLACES[0]]) - 1e-9, float(X[PLACES[-1]]) + 1e-9
DRAWN = 20_000


def in_band(x):
    return (x >= BAND[0]) & (x <= BAND[1])


def wrong_vjp(x, dy):
    dx = cube_vjp(x, dy)
    return tf.where(in_band(x), 1.5 * dx, dx)


def wrong_vjp_vjp(x, dy, ddx):
    of_x, of_dy = cube_vjp_vjp(x, dy, ddx)
    return tf.where(in_band(x), -of_x, of_x), of_dy


FIRST = {
    "derivative": Claim(),
    "formula": Claim(Formula(lambda xs, dys: [3 * xs[0] ** 2 * dys[0]])),
    "surrogate": Claim(Surrogate(lambda xs, at: [xs[0] ** 3])),
}

SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2))]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("claim", FIRST.values(), ids=FIRST)
def test_first_order_wrong_at_three_numbers_is_found(claim: Claim, seed: int) -> None:
    op = made(wrong_vjp, cube_vjp_vjp, claim=lambda attrs: claim)
    (found,) = entries(report(op, inputs={"x": X}, seed=seed, checks=["derivative"], orders=(1,)), "derivative")
    assert found["worst"]["index"][0] in PLACES
    assert "3 of" in found["sentence"]
    assert repr(float(X[found["worst"]["index"][0]])) in found["reproduce"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_second_order_wrong_at_three_numbers_is_found(seed: int) -> None:
    op = made(cube_vjp, wrong_vjp_vjp, claim=lambda attrs: Claim(Derivative(), Derivative()))
    document = report(op, inputs={"x": X}, seed=seed)
    assert failed(document) == ["second"]
    assert any(entry["worst"]["index"][0] in PLACES for entry in entries(document, "second"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("name", ["larger_of_two", "squared_hinge", "offset_by_1e8", "offset_by_1e9"])
def test_kinks_and_noise_at_many_numbers_raise_no_alarm(name: str, seed: int) -> None:
    assert failed(checked(HARD[name].op, seed)) == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    "op", [op for op in discover().ops.values() if op.batching_for(op.attrs()) == "elementwise"], ids=lambda op: op.name
)
def test_registered_ops_pass(op: Op) -> None:
    assert failed(checked(op, 0)) == []


def checked(op: Op, seed: int):
    attrs = dict(op.examples[0].attrs)
    drawn = points.latin_hypercube(op, attrs, "float64", np.random.default_rng(seed), DRAWN)
    inputs = {slot.name: np.stack([row[slot.name] for row in drawn]) for slot in op.inputs}
    return report(op, inputs=inputs, attrs=attrs, seed=seed)


def test_the_op_itself_is_right() -> None:
    assert failed(report(made(cube_vjp, cube_vjp_vjp, value=cube), inputs={"x": X})) == []


def test_numbers_that_are_declared_singular_neither_fail_nor_excuse_the_others() -> None:
    """The first order is wrong at three numbers; the op declares the first of them singular."""
    op = made(wrong_vjp, cube_vjp_vjp, singular=lambda inputs, attrs: bool((inputs["x"] == X[PLACES[0]]).any()))
    # Seed 0 draws none of the three at random.
    (found,) = entries(report(op, inputs={"x": X}, seed=0, checks=["derivative"], orders=(1,)), "derivative")
    assert "2 of" in found["sentence"]
