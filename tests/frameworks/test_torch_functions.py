"""``pullback check torch+MODULE:FUNCTION``: right functions and modules pass, wrong ones fail."""

import pytest

from pullback.gradcheck.of.local import Given
from tests.frameworks import functions_of_torch
from tests.server_checks.function_reports import failed, report

HERE = "torch+tests.frameworks.functions_of_torch:"
RIGHT = ("network", "module", "loss", "norm", "pooled", "only_float32", "cube")
WRONG = {
    "wrong_factor": ("derivative", "1.001 times"),
    "no_second": ("second", "all are 0"),
    "nan_at_zero": ("derivative", "is nan"),
    "without_gradient": ("contract", "expected no torch.no_grad()"),
    "writes": ("mutation", "writes into x"),
    "dropped": ("determinism", "the second evaluation"),
    "halved": ("derivative", "wrong"),
}


@pytest.fixture(autouse=True)
def _arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*RIGHT, *WRONG):
        if not hasattr(functions_of_torch, f"{name}_inputs"):
            monkeypatch.setattr(functions_of_torch, f"{name}_inputs", functions_of_torch.inputs, raising=False)


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_function_passes(name: str) -> None:
    found = report(HERE + name)
    assert found.verdict == "pass", [check.sentence for check in found.checks if check.verdict != "pass"]


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_function_fails(name: str) -> None:
    check, words = WRONG[name]
    wrong = failed(report(HERE + name))
    assert words in wrong.get(check, ""), wrong


def test_shapes_of_the_command_line_are_tensors() -> None:
    found = report("torch+torch.nn.functional:gelu", Given(shapes={"input": (3,)}, dtypes=("float16",)))
    assert found.verdict == "pass"
    assert {"float16", "float32", "float64"} == {check.dtype for check in found.checks}
