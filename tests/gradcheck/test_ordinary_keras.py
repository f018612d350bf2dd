"""Keras models of the usual layers: right ones pass, those with one mistake fail, at every seed."""

import pytest

from tests.gradcheck.checking import failed, report
from tests.gradcheck.ordinary_keras import MODELS, op_of

CHECKS = ("derivative", "second")
CASES = [
    pytest.param(name, seed, marks=() if name == "linear" and seed == 0 else pytest.mark.thorough)
    for name in MODELS
    for seed in range(5)
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), CASES)
def test_a_right_model_does_not_fail(name: str, seed: int) -> None:
    document = report(op_of(name, is_wrong=False), checks=CHECKS, seed=seed)
    is_half = MODELS[name].policy != "float32"
    assert document["verdict"] in ("pass", *(["inconclusive"] if is_half else [])), document["checks"]


@pytest.mark.slow
def test_the_modes_of_a_model_in_half_precision_agree() -> None:
    """At a point of equal weights, its units stand at 0, and each mode rounds to another side of that."""
    document = report(op_of("pooled_float16", is_wrong=False), checks=["modes"], seed=0)
    assert document["verdict"] == "pass", document["checks"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), CASES)
def test_a_model_with_a_mistake_fails(name: str, seed: int) -> None:
    assert "derivative" in failed(report(op_of(name, is_wrong=True), checks=CHECKS, seed=seed))
