"""``pullback check umbridge+http://...`` with UM-Bridge's own server."""

import re
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "check-servers.md"
MODELS = Path(__file__).with_name("umbridge_models.py")


@pytest.fixture(scope="module")
def stock(start):
    return start(sys.executable, "-P", str(MODELS), "PORT", ready="/Info")


def test_right_gradients_pass_with_all_checks(check, stock):
    code, out = check(f"umbridge+{stock}/right", "--budget", "60")
    assert code == 0, out
    assert "right: pass (" in out


@pytest.mark.parametrize("budget", ["60", "9"])
def test_a_large_gradient_fails(check, stock, budget):
    code, out = check(f"umbridge+{stock}/large", "--budget", budget)
    assert code == 1, out
    assert "FAIL " in out


def test_one_large_number_is_named(check, stock):
    code, out = check(f"umbridge+{stock}/one")
    assert code == 1
    assert "dx0[0] at x0 = " in out
    assert "ApplyJacobian" not in out
    assert "adjoint, y/x0" in out or "adjoint, dy/dx0" in out


@pytest.mark.parametrize("budget", ["1000", "5"])
def test_the_tolerance_of_a_solver_is_not_blamed(check, stock, budget):
    assert check(f"umbridge+{stock}/solver", "--budget", budget).code == 0
    if budget != "5":
        assert check(f"umbridge+{stock}/wrong_solver", "--budget", budget).code == 1


def test_points_of_the_user(check, stock):
    assert check(f"umbridge+{stock}/right", "--inputs", '{"x0": [1, -2, 0], "x1": [3, 1]}').code == 0
    code, out = check(f"umbridge+{stock}/right", "--inputs", "[[1, 2, 3]]")
    assert code == 2
    assert "x0 of shape [3], x1 of shape [2]" in out


def test_other_protocols_and_models_are_told(check, stock):
    assert "where MODEL is one of right, large, one, solver" in check(f"umbridge+{stock}/nope").out
    assert check(f"tesseract+{stock}").code == check(f"oip+{stock}/right").code == 2


def test_the_example_of_the_page(check, start, tmp_path):
    page = PAGE.read_text()
    [program] = [block for block in re.findall(r"```py\n(.*?)```", page, re.DOTALL) if "4242" in block]
    (tmp_path / "decay.py").write_text(program.replace("4242", "int(__import__('sys').argv[1])"))
    url = start(sys.executable, "-P", str(tmp_path / "decay.py"), "PORT", ready="/Info")
    code, out = check(f"umbridge+{url}/decay")
    assert code == 1
    [shown] = [block for block in re.findall(r"```text\n(.*?)```", page, re.DOTALL) if "4242" in block]
    shown = shown.replace("http://localhost:4242", url)
    # The last digit of an error bar is that of the exp of a machine.
    varying = re.compile(r"[\d.]+ s\b|(?<=± )\S+")
    assert varying.sub("", out) == varying.sub("", shown)
