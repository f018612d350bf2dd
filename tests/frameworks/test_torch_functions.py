"""``pullback check torch+MODULE:FUNCTION``: right functions and modules pass, wrong ones fail."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch

from pullback.errors import BadArgument
from pullback.gradcheck import WrongGradient, check
from pullback.gradcheck.of.local import Given
from pullback.torch import gradcheck, gradgradcheck
from tests.frameworks import functions_of_torch
from tests.server_checks.function_reports import failed, report, verdicts_of_docs

ROOT = Path(__file__).parents[2]
HERE = "torch+tests.frameworks.functions_of_torch:"
RIGHT = (
    *("network", "module", "loss", "norm", "pooled", "only_float32", "cube", "spectrum", "square", "in_bfloat16"),
    *("convolved", "log_determinant", "pinball"),
)
WRONG = {
    "wrong_factor": ("derivative", "1.001 times"),
    "no_second": ("second", "all are 0"),
    "from_memory": ("layouts", "of strided arrays"),
    "pinball_of_float64": ("derivative", "or numbers in float32 inside, would explain it"),
    "nan_at_zero": ("derivative", "is nan"),
    "without_gradient": ("contract", "expected no torch.no_grad()"),
    "writes": ("mutation", "writes into x"),
    "dropped": ("determinism", "the second evaluation"),
    "halved": ("derivative", "wrong"),
    "without_conjugate": ("derivative", "the sign is flipped"),
    "of_expanded": ("layouts", "of broadcast arrays"),
    "of_block": ("sizes", "with x of shape [67]"),
    "wrong_in_bfloat16": ("dtypes", "dx in bfloat16"),
    "other_when_compiled": ("modes", "in mode compile"),
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


@pytest.mark.thorough
def test_a_compiled_function_is_compared_with_itself() -> None:
    found = check(torch.compile(lambda x: x.tanh() * x.sin()), leaf(0.5, -1.2), checks=["modes"])
    assert {each.sentence.split(" at ")[0] for each in found.checks if each.check == "modes"} == {
        "y in mode compile agrees with y in mode eager",
        "dx in mode compile agrees with dx in mode eager",
    }


def test_the_docs_say_what_autograd_says() -> None:
    theirs, ours = verdicts_of_docs("torch.autograd.gradcheck")
    assert ours == {**dict.fromkeys(RIGHT, "pass"), **dict.fromkeys(WRONG, "fail")}
    assert {name: says(name) for name in theirs} == theirs


def test_the_first_lines_of_the_docs_are_true(tmp_path: Path) -> None:
    """The file and the command print what the docs show, but for the time that they take."""
    page = (ROOT / "docs" / "check-functions.md").read_text(encoding="utf-8")
    code, command, output = (re.findall(rf"```{kind}\n(.*?)```", page, re.S)[0] for kind in ("py", "sh", "text"))
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    arguments = [sys.executable, "-m", *shlex.split(command)]
    done = subprocess.run(arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    taken = r"[0-9.]+ s\)"
    expected = re.escape(re.sub(taken, "TIME", output.strip())).replace("TIME", taken)
    assert re.search(expected, done.stdout), done.stdout


def says(name: str) -> str:
    """Return what autograd's own gradcheck says of a function, in float64."""
    function, made = getattr(functions_of_torch, name), getattr(functions_of_torch, f"{name}_inputs")()
    arguments = made if isinstance(made, tuple) else (made,)
    inputs = [
        x.detach().to(torch.complex128 if x.is_complex() else torch.float64).requires_grad_()
        if x.is_floating_point() or x.is_complex()
        else x
        for x in arguments
    ]
    function = deepcopy(function).double() if isinstance(function, torch.nn.Module) else function
    try:
        return "pass" if torch.autograd.gradcheck(function, inputs) else "fail"
    except Exception:  # noqa: BLE001 - what it raises is what it says
        return "fail"


def test_shapes_of_the_command_line_are_tensors() -> None:
    found = report("torch+torch.nn.functional:gelu", Given(shapes={"input": (3,)}, dtypes=("float16",)))
    assert found.verdict == "pass"
    assert {"float16", "float32", "float64"} == {check.dtype for check in found.checks}


def leaf(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64, requires_grad=True)


def test_what_autograd_checks_is_checked_in_its_place() -> None:
    scale = leaf(2.0, 3.0)
    found = gradcheck(lambda x: (x * scale).sin(), leaf(0.5, -1.2))
    assert found
    assert gradgradcheck(lambda x, y: x.exp() * y, [leaf(0.5), leaf(1.5)])
    # Neither a constant nor an output without a gradient is differentiated.
    mixed = gradcheck(lambda x, mask: (x * mask, mask.sum()), (leaf(1.0, 2.0), torch.tensor([1.0, 0.0])))
    assert {each.input for each in mixed.checks if each.check == "derivative"} == {"x"}
    assert "1 has no gradient in PyTorch" in mixed.document["scope"]


def test_an_output_may_depend_on_some_of_the_inputs() -> None:
    assert check(lambda x, y: {"a": x.sin(), "b": y.cos()}, (leaf(0.5), leaf(1.5)))


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (functions_of_torch.wrong_factor, leaf(0.5, -1.2)),
        (lambda x, n: (x, [functions_of_torch.wrong_factor(x["w"]) ** n]), ({"w": leaf(0.5, -1.2)}, 2)),
        (functions_of_torch.Layer(2, 2), leaf(0.5, -1.2)),
    ],
)
def test_a_wrong_gradient_raises_a_report_with_the_python_that_shows_it(
    function: Callable[..., Any], inputs: Any
) -> None:
    with pytest.raises(WrongGradient, match=r"all are 1\.001 times") as raised:
        check(function, inputs, checks=["derivative"])
    wrong = next(each for each in raised.value.report.checks if each.verdict == "fail" and each.worst.index)
    setup, expression = wrong.reproduce.rsplit("; ", 1)
    names = {"wrong_factor": function, "f": function}
    exec(setup, names)
    assert float(eval(expression, names)[wrong.worst.index]) == pytest.approx(wrong.worst.analytic, rel=1e-14)


def test_other_arguments_of_autograd_are_accepted() -> None:
    with pytest.warns(UserWarning, match="ignores eps, atol"):
        assert not gradcheck(functions_of_torch.wrong_factor, leaf(0.5), eps=1e-3, atol=1.0, raise_exception=False)
    with pytest.warns(UserWarning, match="does not check check_batched_grad"):
        assert gradcheck(torch.sin, leaf(0.5), check_forward_ad=True, fast_mode=True, check_batched_grad=True)
    with pytest.raises(WrongGradient, match="all are 0"):
        gradgradcheck(functions_of_torch.no_second, leaf(0.5))
    with pytest.raises(BadArgument, match="add requires_grad=True"):
        gradcheck(torch.sin, torch.tensor([0.5]))
