"""``pullback check jax+MODULE:FUNCTION``: right functions pass, wrong ones fail."""

import pytest

from tests.frameworks import functions_of_jax
from tests.server_checks.function_reports import failed, report

HERE = "jax+tests.frameworks.functions_of_jax:"
RIGHT = ("network", "scanned", "power", "untraceable", "with_rule")
WRONG = {
    "wrong_rule": ("derivative", "1.001 times"),
    "wrong_tangent": ("derivative", "1.001 times"),
    "halved": ("derivative", "wrong"),
    "looped": ("contract", "Reverse-mode differentiation does not work"),
    "other_when_compiled": ("modes", "y in mode eager"),
}


@pytest.fixture(autouse=True)
def _arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*RIGHT, *WRONG):
        if not hasattr(functions_of_jax, f"{name}_inputs"):
            monkeypatch.setattr(functions_of_jax, f"{name}_inputs", functions_of_jax.inputs, raising=False)


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_function_passes(name: str) -> None:
    found = report(HERE + name)
    assert found.verdict == "pass", [check.sentence for check in found.checks if check.verdict != "pass"]


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_function_fails(name: str) -> None:
    check, words = WRONG[name]
    wrong = failed(report(HERE + name))
    assert words in wrong.get(check, ""), wrong
