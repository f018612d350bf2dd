"""The command line: checks, how they end, and what they write."""

import json
import os
import pty
import signal
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.client.conftest import client_environment, command
from tests.client.documents import FAILING, JUDGED, PASSING, stream
from tests.client.fake_servers import event_stream, problem_response
from tests.patience import PATIENCE_S


def test_check(process: Any, tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("json", "junit")}
    options = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    result = process("check", "square", "round_ste", "--check", "derivative", "--dtype", "float64", *options)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert [line.partition(" (")[0] for line in lines[:2]] == ["square: pass", "round_ste: pass"]
    assert lines[2].startswith("2 passed, 0 failed, 0 inconclusive of 2 ops in ")
    assert [report["op"] for report in json.loads(files["json"].read_text())["reports"]] == ["square", "round_ste"]
    assert files["junit"].read_text().count("<testsuite ") == 2
    assert "\x1b" not in result.out


def test_a_truncated_stream_of_checks_is_an_error(run: Any, fake_server: Any, tmp_path: Path) -> None:
    server = fake_server(event_stream(*stream(PASSING)[:-1], is_cut=True))
    result = run("check", "--junit", str(tmp_path / "x"), url=server.url)
    assert result.out.startswith("square: pass")
    assert "closed the connection" in result.error
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("my_op", "and no file or folder here is named my_op: did you mean my_ops?"),
        ("mse", "and no file or folder here is named mse: did you mean my_ops/mse.py?"),
        ("square", "and no file or folder here is named square\n"),
    ],
)
def test_a_name_without_a_service_may_be_a_misspelt_path(
    name: str, words: str, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_ops").mkdir()
    (tmp_path / "my_ops" / "mse.py").touch()
    monkeypatch.chdir(tmp_path)
    result = run("check", name, url="http://127.0.0.1:1")
    assert "cannot connect to http://127.0.0.1:1 " in result.err
    assert words in result.err


def test_a_service_with_keys_says_how_to_set_one(run: Any, fake_server: Any) -> None:
    server = fake_server(problem_response(401, "Unauthorized"))
    assert "; set PULLBACK_KEY to the key" in run("ops", url=server.url).err


def test_ctrl_c_prints_and_writes_what_was_checked(fake_server: Any, tmp_path: Path) -> None:
    *events, _ = stream(PASSING, FAILING)
    server = fake_server(event_stream(*events[:-1], is_held=True))
    file = tmp_path / "reports.json"
    with subprocess.Popen(
        command("check", "--json", str(file)),
        env=client_environment(server.url) | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that starts the tests in the background lets them ignore Ctrl-C.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - this process has one thread
    ) as running:
        assert running.stdout
        first = running.stdout.readline()
        running.send_signal(signal.SIGINT)
        rest, err = running.communicate(timeout=PATIENCE_S)
    assert first == f"square: pass (1 passed, 1 skipped{JUDGED}\n"
    # The signal may arrive within a print, and rich then prints the line twice.
    assert rest.removeprefix(first) == "interrupted: checked 1 of 2 ops\n"
    assert (running.returncode, err) == (130, "")
    assert [report["op"] for report in json.loads(file.read_text())["reports"]] == ["square"]
    assert server.finished.wait(PATIENCE_S)


def test_reports_on_standard_output_are_nothing_but_json(process: Any) -> None:
    done = process("check", "square", "--check", "contract", "--json", "-")
    assert done.code == 0
    assert [report["op"] for report in json.loads(done.out)["reports"]] == ["square"]
    assert done.err.startswith("square: pass (")


@pytest.mark.slow
def test_a_terminal_gets_colours_and_a_table(service: Any) -> None:
    ours, theirs = pty.openpty()
    environ = client_environment(service.url) | {"TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command("check", "square", "--order", "1"), env=environ, stdout=theirs) as running:
        os.close(theirs)
        shown = read_all(ours)
    assert running.returncode == 0
    assert "━" in shown
    assert "\x1b[32m" in shown
    assert "1 passed, 0 failed" in shown


def read_all(terminal: int) -> str:
    pieces = list[bytes]()
    try:
        while piece := os.read(terminal, 4096):
            pieces.append(piece)
    except OSError:  # Linux raises EIO when the other side of the terminal is closed
        pass
    os.close(terminal)
    return b"".join(pieces).decode()
