"""``pullback check umbridge+http://...`` with UM-Bridge's own server."""

import re
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "check-servers.md"
URL = "http://localhost:4242"
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
    code, out = check(f"umbridge+{stock}/one", "--budget", "2000")  # two inputs: 1000 move no number alone
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


@pytest.fixture(scope="module")
def decay(start, tmp_path_factory):
    """The URL of the server of the page."""
    [program] = [block for block in blocks("py") if "4242" in block]
    path = tmp_path_factory.mktemp("page") / "decay.py"
    path.write_text(program.replace("4242", "int(__import__('sys').argv[1])"))
    return start(sys.executable, "-P", str(path), "PORT", ready="/Info")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_recording_of_the_page(check, decay, tmp_path):
    [program] = [block for block in blocks("py") if "PULLBACK_RECORDED_URL" in block]
    (tmp_path / "application.py").write_text(program)
    [command] = [block for block in blocks("sh") if block.startswith("pullback record ")]
    target, *rest = command.replace("http://localhost:4242", decay).split()[2:]
    assert rest == ["--", "python", "application.py"]
    code, out = check(target, "--", sys.executable, str(tmp_path / "application.py"), command="record")
    assert code == 1
    [shown] = [block for block in blocks("text") if block.startswith("recording ")]

    def lines(text):
        """Return what does not depend on the time at which inputs were checked."""
        return [re.sub(r"[-+]?\d[\d.e+-]*", "#", line) for line in text.replace(decay, URL).splitlines()]

    found, expected = lines(out), lines(shown)
    assert [line for line in found if line.startswith("FAIL ")] == [
        line for line in expected if line.startswith("FAIL ")
    ]
    assert found[0] == expected[0]
    assert "8 of 8 recorded inputs show it" in out
    assert "8 inputs of 50 requests, drawn at random, " in out


def test_the_example_of_the_page(check, decay):
    code, out = check(f"umbridge+{decay}/decay")
    assert code == 1
    [shown] = [block for block in blocks("text") if block.startswith("umbridge+")]
    shown = shown.replace(URL, decay)
    # The last digit of an error bar is that of the exp of a machine.
    varying = re.compile(r"[\d.]+ s\b|(?<=± )\S+")
    assert varying.sub("", out) == varying.sub("", shown)
