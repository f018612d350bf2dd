"""Functions of JAX as their users write them: right ones pass, those with a mistake fail, at every seed.

``-m thorough`` runs the other models and seeds.
"""

import pytest

from tests.frameworks.ordinary_jax import MODELS
from tests.server_checks.function_reports import report

HERE = "jax+tests.frameworks.ordinary_jax:"
QUICK = ("heat", "cross_entropy", "mixed")
CASES = [
    pytest.param(name, seed, marks=() if name in QUICK and seed == 0 else pytest.mark.thorough)
    for name in MODELS
    for seed in range(5)
]


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_a_right_model_passes(name: str, seed: int) -> None:
    found = report(HERE + name, seed=seed)
    assert found.verdict == "pass", [check.sentence for check in found.checks if check.verdict != "pass"]


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_a_model_with_a_mistake_fails(name: str, seed: int) -> None:
    assert report(f"{HERE}{name}_mistaken", seed=seed).verdict == "fail"
