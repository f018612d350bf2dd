"""Modules of PyTorch as their users write them: right ones pass, those with a mistake fail, at every seed.

``-m thorough`` runs the other models and seeds.
"""

import pytest

from tests.frameworks.ordinary_torch import MODELS
from tests.server_checks.function_reports import report

HERE = "torch+tests.frameworks.ordinary_torch:"
QUICK = ("attention", "batch_norm", "mixed", "newton")
CASES = [
    pytest.param(name, seed, marks=() if name in QUICK and seed == 0 else pytest.mark.thorough)
    for name in MODELS
    for seed in range(5)
]


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_a_right_model_passes(name: str, seed: int) -> None:
    found = report(HERE + name, seed=seed)
    others = [check for check in found.checks if check.verdict != "pass"]
    # In bfloat16, small gradients have no digits.
    doubtful = {(check.check, check.verdict) for check in others if check.verdict != "skipped"}
    assert not doubtful or (name, doubtful) == ("mixed", {("dtypes", "inconclusive")}), others


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_a_model_with_a_mistake_fails(name: str, seed: int) -> None:
    assert report(f"{HERE}{name}_mistaken", seed=seed).verdict == "fail"
