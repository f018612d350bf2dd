"""Scientific functions of NumPy: each is right and passes, and fails with its common mistake, at every seed."""

import pytest

from pullback.gradcheck.of.local import Given
from tests.server_checks.function_reports import report
from tests.server_checks.ordinary_functions import MODELS

HERE = "numpy+tests.server_checks.ordinary_functions:"
CASES = [
    pytest.param(name, seed, marks=() if name in ("least_squares", "network") and seed == 2 else pytest.mark.thorough)
    for name in MODELS
    for seed in range(5)
]


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_a_right_function_passes(name: str, seed: int) -> None:
    found = report(HERE + name, seed=seed)
    assert found.verdict == "pass", [check.sentence for check in found.checks if check.verdict != "pass"]


@pytest.mark.parametrize(("name", "seed"), CASES)
def test_a_function_with_a_mistake_fails(name: str, seed: int) -> None:
    assert report(HERE + name, Given(vjp=f"{name}_mistaken"), seed=seed).verdict == "fail"
