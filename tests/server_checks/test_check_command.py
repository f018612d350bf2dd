"""``pullback check`` with the URL of a server: reports, exit codes, and errors for servers that answer nonsense."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pullback.cli import main
from tests.server_checks.http_servers import served, slowly, umbridge

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(monkeypatch, capfd):
    def call(*args: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["pullback", "check", *args])
        capfd.readouterr()
        code = main()
        return code, *capfd.readouterr()

    return call


def test_a_right_gradient(run, tmp_path) -> None:
    with served(umbridge()) as url:
        code, out, _ = run(f"umbridge+{url}/square", "--json", str(tmp_path / "a"), "--junit", str(tmp_path / "b"))
        assert code == 0, out
        assert f"umbridge+{url}/square: pass (5 passed; " in out
        assert "What happens at other points, and at kinks, is not shown." in out
        (report,) = json.loads((tmp_path / "a").read_text())["reports"]
        assert report["evaluations"] <= 1000
        checks = {"contract", "derivative", "determinism", "linearity", "freshness"}
        assert {entry["check"] for entry in report["checks"]} == checks
        assert '<testsuites name="pullback" tests="5" failures="0"' in (tmp_path / "b").read_text()
        # The only model needs no name.
        assert run(f"umbridge+{url}", "--budget", "5")[0] == 0


def test_a_wrong_gradient_and_the_request_that_shows_it(run) -> None:
    half = {"Gradient": lambda body: {"output": [x * s for x, s in zip(body["input"][0], body["sens"], strict=True)]}}
    with served(umbridge(**half)) as url:
        code, out, _ = run(f"umbridge+{url}/square", "--inputs", "[[1.5, 0]]", "--budget", "200")
        assert code == 1, out
        assert "all are 0.5 times what they should be" in out
        command = next(line.strip() for line in out.splitlines() if line.strip().startswith("curl "))
        done = subprocess.run(command, shell=True, capture_output=True, check=True)
        assert json.loads(done.stdout)["output"]


def test_points_and_config_are_sent(run) -> None:
    seen = []

    def evaluate(body):
        seen.append((body["input"], body["config"]))
        return {"output": [[x**2 for x in body["input"][0]]]}

    with served(umbridge(Evaluate=evaluate)) as url:
        for point in ("[[3, 4]]", '{"x": [3, 4]}'):
            assert run(f"umbridge+{url}/square", "--inputs", point, "--config", '{"a": 1}', "--budget", "20")[0] == 0
            assert seen[0] == ([[3.0, 4.0]], {"a": 1})
            seen.clear()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Info": b"<html>"}, "expected JSON, got <html>"),
        ({"Info": [1]}, "expected an object with 'models', got [1]"),
        ({"Info": (500, {"error": "x"})}, "expected an answer, got status 500"),
        ({"InputSizes": {"inputSizes": [0]}}, "expected sizes from 1 to"),
        ({"InputSizes": {"inputSizes": [1 << 60]}}, "expected sizes from 1 to"),
        ({"ModelInfo": {"support": 3}}, "expected an object with 'Evaluate', got 3"),
        ({"Info": b"[" * 200_000}, "expected JSON"),
    ],
)
def test_a_server_that_cannot_be_checked_is_unavailable(run, changes, message) -> None:
    with served(umbridge(**changes)) as url:
        code, out, _ = run(f"umbridge+{url}/square")
        assert code == 2
        assert "not checked, since unavailable: " in out
        assert message in out


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        ({"Gradient": {"output": [1.0]}}, 1, "expected numbers of shape [2], got shape [1]"),
        ({"Gradient": {"output": [1.0, None]}}, 1, "expected numbers of shape [2], got [1.0, None]"),
        ({"Gradient": {"output": [[1.0], [2.0, 3.0]]}}, 1, "got nested lists of uneven length"),
        ({"Gradient": (500, {"error": {"type": "x"}})}, 1, "the gradient fails at a point that has values"),
        ({"Gradient": {"output": [float("nan")] * 2}}, 1, "dx is nan, but the numeric derivative"),
        ({"Evaluate": {"output": [[1.0, 2.0, 3.0]]}}, 2, "expected numbers of shape [2], got shape [3]"),
        ({"Evaluate": {"output": [[float("nan"), 1.0]]}}, 2, "y: expected finite values"),
        ({"Evaluate": (400, {"error": {"type": "InvalidInput"}})}, 2, "give a point that it accepts with --inputs"),
        ({"Evaluate": {"output": [["1", "2"]]}}, 2, "expected numbers of shape [2], got ['1', '2']"),
    ],
)
def test_nonsense_is_told(run, changes, code, message) -> None:
    with served(umbridge(**changes)) as url:
        found, out, err = run(f"umbridge+{url}/square")
        assert (found, message in out) == (code, True), out + err


def test_the_second_point_of_the_user_is_not_left_out(run) -> None:
    def evaluate(body):
        x = body["input"][0]
        return {"output": [[x[0] ** 2, x[1] ** 2]]} if x[0] < 5 else (400, {"error": {"type": "InvalidInput"}})

    with served(umbridge(Evaluate=evaluate)) as url:
        code, out, _ = run(f"umbridge+{url}/square", "--inputs", "[[1, 2]]", "--inputs", "[[9, 2]]")
        assert code == 2
        assert "give a point that it accepts with --inputs" in out
        assert "The checks ended early" in out


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again_and_never_blamed(run, monkeypatch, status) -> None:
    monkeypatch.setattr("pullback.gradcheck.of.json_server.PAUSES_S", (0.01, 0.01))
    count = 0

    def busy(body, every: int):
        nonlocal count
        count += 1
        return (status, {}, {"Retry-After": "0"}) if count % every else umbridge()["/Gradient"](body)

    with served(umbridge(Gradient=lambda body: busy(body, 2))) as url:
        assert run(f"umbridge+{url}/square", "--budget", "20")[0] == 0
    with served(umbridge(Gradient=lambda body: (status, {}))) as url:
        code, out, _ = run(f"umbridge+{url}/square", "--budget", "20")
        assert (code, "the server stays busy, with status" in out) == (2, True), out


def test_an_answer_is_bounded_in_time_and_size(run, monkeypatch) -> None:
    monkeypatch.setattr("pullback.gradcheck.of.json_server.MAX_BYTES", 1000)
    with served(umbridge(Gradient={"output": [1.0] * 1000})) as url:
        assert "expected at most 0 MiB, got more" in run(f"umbridge+{url}/square")[1]
    with served(umbridge(Evaluate=slowly(umbridge()["/Evaluate"], 1.0))) as url:
        code, out, _ = run(f"umbridge+{url}/square", "--timeout", "0.3")
        assert code == 2
        assert "no answer within 0.3 s: allow more with --timeout" in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["umbridge+http://127.0.0.1:1/m", "--budget", "4"], "--budget: expected at least 5 evaluations, got 4"),
        (["umbridge+http://127.0.0.1:1/m", "--seconds", "7"], "--seconds: expected none for umbridge+http"),
        (["square", "--budget", "7"], "--inputs, --config and --budget: expected a server"),
        (["umbridge+http://127.0.0.1:1/m", "--dtype", "float32"], "--dtype and --mode: expected a function"),
        (["umbridge+http://127.0.0.1:1/m", "square"], "expected only URLs of servers beside umbridge+http"),
        (["umbridge+http://127.0.0.1:1/m", "--check", "batching"], "--check: expected some of derivative, determinism"),
        (["grpc+http://127.0.0.1:1/m"], "expected a URL that begins with one of umbridge+http, tesseract+http, oip+"),
        (
            ["pytorch+mine:cube"],
            "numpy+, torch+, jax+, tf+MODULE:FUNCTION, got 'pytorch+mine:cube'; did you mean torch+mine",
        ),
        (["tensorflow+mine.py:cube"], "did you mean tf+mine:cube?"),
        (["torch+mine.py:cube"], "expected a module, got a file in torch+mine.py:cube: write torch+mine:cube"),
        (["ase+my/mine.py:make"], "expected a module, got a file in ase+my/mine.py:make: write ase+my.mine:make"),
        (
            ["mine:cube", "--shape", "x=3"],
            "expected the library of a function, got 'mine:cube': write one of numpy+mine",
        ),
        (["ase+math:pi"], "ase+math:pi: expected a function, got float"),
        (["ase+math:tau", "--config", '{"a": 1}'], "--config: expected none, since a calculator has only inputs"),
        (["square", "--inputs", "[1]"], "--inputs, --config and --budget: expected a server"),
    ],
)
def test_options_that_do_not_fit(run, args, message) -> None:
    code, _, err = run(*args)
    assert code == 2
    assert message in err


def test_a_server_that_is_down(run) -> None:
    code, out, _ = run("umbridge+http://127.0.0.1:1/m")
    assert code == 2
    assert "cannot connect to http://127.0.0.1:1 " in out
    assert "start the server there, or correct the URL" in out


def test_the_client_alone_is_enough() -> None:
    program = "import sys, pullback.cli.commands; print({'tensorflow', 'ml_dtypes', 'app', 'ops'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
