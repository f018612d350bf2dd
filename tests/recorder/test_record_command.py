"""``pullback record`` before a server of UM-Bridge, with an application of its own process."""

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pullback.cli import main
from tests.patience import PATIENCE_S
from tests.server_checks.http_servers import served, umbridge

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
# Calls the model at N inputs x = (LOW + i / N, 1), by Gradient every other time.
APPLICATION = """
import http.client, json, os, sys
from urllib.parse import urlsplit
low, count, code = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
server = http.client.HTTPConnection(urlsplit(os.environ["PULLBACK_RECORDED_URL"]).netloc, timeout=60)
for i in range(count):
    body = {"name": "square", "input": [[low + i / count, 1.0]], "config": {}}
    path = "/Evaluate"
    if i % 2:
        path, body = "/Gradient", {**body, "outWrt": 0, "inWrt": 0, "sens": [1.0, 1.0]}
    server.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = server.getresponse()
    print(answer.status, answer.read().decode().strip())
sys.exit(code)
"""


def wrong_above_five(body: Any) -> Any:
    """Return a gradient that is right at the random points of ``pullback check``, and wrong where x > 5."""
    (x,), sens = body["input"], body["sens"]
    return {"output": [(2 if x[0] < 5 else 2.2) * each * s for each, s in zip(x, sens, strict=True)]}


def application(low: float = 1.0, count: int = 12, code: int = 0) -> list[str]:
    return ["--", sys.executable, "-c", APPLICATION, str(low), str(count), str(code)]


def record(*args: str, folder: Path | None = None) -> tuple[int, str]:
    """Return the exit code and the output."""
    command = [sys.executable, "-m", "pullback", "record", *args]
    done = subprocess.run(
        command, cwd=folder or ROOT, capture_output=True, text=True, check=False, timeout=2 * PATIENCE_S
    )
    return done.returncode, done.stdout + done.stderr


@contextmanager
def recording(*args: str) -> Generator[tuple[subprocess.Popen[str], int]]:
    """Start a recording without a command; yield the process and its port."""
    command = [sys.executable, "-m", "pullback", "record", *args]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert ": call http://127.0.0.1:" in line, line
            yield process, int(line.partition(": call http://127.0.0.1:")[2].split()[0])
        finally:
            if process.poll() is None:
                process.kill()


def evaluate(port: int, *xs: float) -> list[tuple[int, str]]:
    server = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    found = []
    for x in xs:
        server.request("POST", "/Evaluate", json.dumps({"name": "square", "input": [[x, 1.0]], "config": {}}))
        answer = server.getresponse()
        found.append((answer.status, answer.read().decode()))
    server.close()
    return found


def test_a_right_gradient(tmp_path: Path) -> None:
    with served(umbridge()) as url:
        code, out = record(f"umbridge+{url}/square", "--json", str(tmp_path / "a"), *application(), folder=tmp_path)
    assert code == 0, out
    assert out.count("200 {") == 12
    assert f"umbridge+{url}/square: pass (" in out
    assert "of 12 requests, drawn at random" in out
    (report,) = json.loads((tmp_path / "a").read_text())["reports"]
    checks = {entry["check"]: entry for entry in report["checks"]}
    assert set(checks) == {"repeat", "contract", "derivative", "determinism", "linearity", "freshness", "answer"}
    assert {entry["verdict"] for entry in checks.values()} == {"pass"}
    assert 0 < report["evaluations"] <= 1000
    recorded = report["recorded"]
    assert (recorded["requests"], recorded["inputs"]) == (12, 8)
    assert checks["derivative"]["points"] == 8
    assert not any(recorded[name] for name in ("lost", "refused", "unread", "oversized", "unreadable"))


def test_a_fault_that_only_the_inputs_of_the_application_show() -> None:
    with served(umbridge(Gradient=wrong_above_five)) as url:
        done = subprocess.run(
            [sys.executable, "-m", "pullback", "check", f"umbridge+{url}/square", "--budget", "130"],
            cwd=ROOT,
            capture_output=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, done.stdout
        code, out = record(f"umbridge+{url}/square", *application(low=4.5))
    assert code == 1, out
    assert "FAIL umbridge+" in out
    assert "this is the input of request " in out
    assert "of 8 recorded inputs show it" in out


def test_a_server_that_answers_otherwise_the_second_time() -> None:
    count = 0

    def drifting(body: Any) -> Any:
        nonlocal count
        count += 1
        return {"output": [[x**2 + (count > 12) for x in body["input"][0]]]}

    with served(umbridge(Evaluate=drifting)) as url:
        code, out = record(f"umbridge+{url}", *application(count=24))
    assert code == 1, out
    assert "FAIL umbridge+" in out
    assert " repeat, " in out
    assert "the recorded answer" in out


RECORDINGS = 5


@pytest.mark.parametrize("decimals", [2, 6, 17])
def test_an_application_that_gets_the_gradient_of_another_point(tmp_path: Path, decimals: int) -> None:
    """The other gradients at the point come from near ones too: which of them are asked for is a matter of time.

    So the recorded answer may agree with them, once in a dozen recordings. The freshness never does.
    """
    for _ in range(RECORDINGS):
        code, out, checks = recorded_with_a_cache(tmp_path, decimals)
        if decimals > 16:
            assert (code, checks["answer"]["verdict"], checks["freshness"]["verdict"]) == (0, "pass", "pass"), out
            return
        assert (code, checks["freshness"]["verdict"]) == (1, "fail"), out
        if checks["answer"]["verdict"] == "fail":
            break
    assert checks["answer"]["verdict"] == "fail", out
    assert "the recorded derivative[0] is " in out
    assert "this is the input of request " in checks["answer"]["sentence"]
    assert checks["answer"]["reproduce"].count("/Gradient -H") == 3


def recorded_with_a_cache(tmp_path: Path, decimals: int) -> tuple[int, str, dict[str, Any]]:
    """Return the exit code, the output and the checks of a recording.

    The calls are 2e-8 or, with few decimals, 1e-3 apart; the server keeps gradients under a rounded key.
    """
    kept: dict[Any, Any] = {}
    asked: list[Any] = []

    def keeps(body: Any) -> Any:
        asked.append(body)
        key = tuple(round(x, decimals) for x in body["input"][0]), tuple(body["sens"])
        return kept.setdefault(key, umbridge()["/Gradient"](body))

    def evaluate(body: Any) -> Any:
        asked.append(body)
        return umbridge()["/Evaluate"](body)

    program = APPLICATION.replace("i / count", "i * 2e-8" if decimals > 2 else "i * 1e-3")
    command = [*application()[:3], program, *application(low=0.5, count=40)[4:]]
    with served(umbridge(Evaluate=evaluate, Gradient=keeps)) as url:
        code, out = record(f"umbridge+{url}/square", "--json", str(tmp_path / "a"), *command, folder=tmp_path)
    (report,) = json.loads((tmp_path / "a").read_text())["reports"]
    checks = {entry["check"]: entry for entry in report["checks"]}
    assert report["evaluations"] == len(asked) - 40 <= 1000
    return code, out, checks


def test_a_server_that_goes_away() -> None:
    with served(umbridge()) as url:
        context = recording(f"umbridge+{url}/square", "--timeout", "5")
        process, port = context.__enter__()
        assert evaluate(port, 1.0)[0][0] == 200
    # The server has stopped.
    with_error = evaluate(port, 2.0)
    assert with_error[0][0] == 502
    assert f"pullback record: cannot connect to {url} (" in with_error[0][1]
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=PATIENCE_S)
    context.__exit__(None, None, None)
    assert process.returncode == 2, out
    assert "the check broke off: cannot connect to " in out or "closed before an answer" in out


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, "--for"])
def test_a_recording_ends_by_a_signal_or_in_time(how: Any) -> None:
    args = ["--for", "1.5"] if how == "--for" else []
    with served(umbridge()) as url, recording(f"umbridge+{url}/square", "--calls", "60", *args) as (process, port):
        began = time.monotonic()
        assert evaluate(port, 1.0, 2.0)[1] == (200, '{"output": [[4.0, 1.0]]}')
        if how != "--for":
            process.send_signal(how)
        out, _ = process.communicate(timeout=PATIENCE_S)
        assert time.monotonic() - began < PATIENCE_S
    assert process.returncode == 0, out
    assert "of 2 requests, drawn at random" in out


def test_a_second_signal_ends_the_checks() -> None:
    wait = threading.Event()

    def slow(body: Any) -> Any:
        wait.wait(1.0)
        return umbridge()["/Evaluate"](body)

    with served(umbridge(Evaluate=slow)) as url, recording(f"umbridge+{url}/square") as (process, port):
        evaluate(port, 1.0)
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=PATIENCE_S)
        wait.set()
    assert process.returncode == 130, out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["square"], "expected a server, such as umbridge+http://localhost:4242/model, got 'square'"),
        (["ase+module:factory"], "expected a URL that begins with one of umbridge+http, tesseract+http, oip+http"),
        (["umbridge+http:///x"], "expected a URL such as http://localhost:4242"),
        (["umbridge+http://127.0.0.1:1", "--calls", "5"], "--calls: expected at least 6 evaluations, got 5"),
        (["umbridge+http://127.0.0.1:1", "--for", "1", "--", "true"], "--for: expected none beside a command"),
        (["umbridge+http://127.0.0.1:1", "--", "./no such program"], "cannot run ./no such program: No such file"),
    ],
)
def test_options_that_do_not_fit(args: list[str], message: str, monkeypatch: Any, capfd: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["pullback", "record", *args])
    assert main() == 2
    assert message in "".join(capfd.readouterr())


def test_nothing_to_check_is_no_success() -> None:
    with served(umbridge()) as url:
        code, out = record(f"umbridge+{url}/square", "--", "true")
        assert (code, "0 requests came" in out) == (2, True), out
        # Nor is an application that fails.
        code, out = record(f"umbridge+{url}/square", "--calls", "60", *application(code=3))
        assert (code, "the application ended with status 3" in out) == (2, True), out
    refusal = (400, {"error": {"type": "InvalidInput"}})
    with served(umbridge(Evaluate=refusal, Gradient=refusal)) as url:
        code, out = record(f"umbridge+{url}/square", *application())
        assert (code, "12 requests came, and none of them was an evaluation" in out) == (2, True), out
    without = {"support": {"Evaluate": True, "Gradient": False}}
    with served(umbridge(ModelInfo=without)) as url:
        code, out = record(f"umbridge+{url}/square", *application())
        assert (code, "expected a model that supports Gradient" in out) == (2, True), out


def test_a_port_that_is_taken() -> None:
    with served({}) as url:
        code, out = record(f"umbridge+{url}", "--port", url.rpartition(":")[2])
    assert code == 2
    assert "--port: cannot listen on port" in out
