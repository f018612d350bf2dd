"""The command line, with a real service and without one."""

import hashlib
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import pullback
from tests.client.conftest import ROOT, client_environment, command
from tests.client.documents import FAILING, PASSING, stream
from tests.client.fake_servers import Response, event_stream, json_response
from tests.conftest import READY, environment
from tests.patience import PATIENCE_S

COMMANDS = [
    ["ops"],
    ["show", "square"],
    ["call", "square", "forward", "x=1"],
    ["check"],
    ["verify", "square", "x=1", "gx=2"],
]


def test_the_version(run) -> None:
    assert run("--version").out == f"pullback {pullback.__version__}\n"


@pytest.mark.parametrize(
    "args", [["--help"], [], *([name, "--help"] for name in ("serve", "key", "call", "check", "verify"))]
)
def test_help(run, args: list[str]) -> None:
    assert "Usage: pullback" in "".join(run(*args)[1:])


def test_a_new_key_and_its_line(run) -> None:
    first, second = (run("key", "new", "alice").out.splitlines() for _ in range(2))
    (key, line), other = first[1::2], second[1]
    assert line == f"alice:{hashlib.sha256(key.encode()).hexdigest()}"
    assert len(key) > 43
    assert key != other


@pytest.mark.parametrize("name", ["", "a b", "a:b", "#", "-x", "a" * 65, "a\n"])
def test_an_invalid_name_of_a_key(run, name: str) -> None:
    assert "expected a name of at most 64 letters" in run("key", "new", "--", name).error


def test_ops_lists_every_op(ask, api) -> None:
    lines = ask("ops").out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [op.name for op in api.ops()]
    assert lines == [line.rstrip() for line in lines]
    assert any("formula, then derivative; not linear" in line for line in lines)


def test_unavailable_ops_have_a_reason(run, fake_server) -> None:
    fields = {"summary": "", "mechanism": "", "claim": None, "available": False}
    listing = json_response({"ops": [{"name": "broken", "reason": "no [bold]such\x1b[31m module", **fields}]})
    assert run("ops", "--url", fake_server(listing).url).out.splitlines()[1].split() == [
        *("broken", "unavailable", "no", "[bold]such�[31m", "module")
    ]


def test_show_prints_the_contract(ask) -> None:
    out = ask("show", "roi_pool").out
    for part in ("Max pooling over regions", "pooled_height  7", "integer >= 1 <= 64", "[R, 5]", "two_regions: "):
        assert part in out


def test_every_example_of_show_is_valid_for_call(ask) -> None:
    lines = ask("show", "surrogate").out.partition("Examples\n")[2].splitlines()
    for line in lines:
        assert ask("call", "surrogate", "forward", *line.partition(": ")[2].split()).code == 0
    assert len(lines) > 3


@pytest.mark.parametrize(
    ("args", "out"),
    [
        (["square", "forward", "x=1,2,-3"], "outputs.y  float32 [3]\n[1. 4. 9.]\n"),
        (["square", "vjp", "x=1,2", "dy=1,10"], "gradients.x  float32 [2]\n[ 2. 40.]\n"),
        (["square", "vjp", "x=1", "--outputs"], "gradients.x  float32 []\n2.\noutputs.y  float32 []\n1.\n"),
        (["square", "jvp", "x=1,3", "tx=1,10", "--dtype", "float64"], "tangents.y  float64 [2]\n[ 2. 60.]\n"),
        (["square", "hvp", "inputs.x=1", "vx=3"], "products.x  float32 []\n6.\n"),
        (["square", "hvp", "x=1", "ddx=3", "cotangents.y=2"], "products.x  float32 []\n12.\n"),
        (["square", "hessian", "x=1,2", "--diagonal"], "diagonal.x  float32 [2]\n[2. 2.]\n"),
        (["square", "jacobian", "x=[1,3]", "--of", "y", "--wrt", "x"], "[[2. 0.]\n [0. 6.]]\n"),
        (["square", "gradients", "x=3", "--order", "3"], "gradients.3.x: none (disconnected)\n"),
        (["scale_gradient", "vjp", "x=1", "scale=-2.5"], "-2.5\n"),
        (["surrogate", "forward", "x=1.7", "forward=round", "--mode", "eager"], "2.\n"),
        (["square", "forward", "x=nan,-inf"], "[nan inf]\n"),
    ],
)
def test_call(ask, args: list[str], out: str) -> None:
    result = ask("call", *args)
    assert (result.code, result.err) == (0, "")
    assert result.out.endswith(out)


def test_call_reads_and_writes_files(ask, tmp_path) -> None:
    x, out = tmp_path / "x.npy", tmp_path / "out.npz"
    np.save(x, np.array([[1.0, 2.0]]))
    (tmp_path / "dy.json").write_text("[[1, 10]]")
    assert ask("call", "square", "vjp", f"x=@{x}", f"dy=@{tmp_path / 'dy.json'}", "--out", str(out)).out == ""
    with np.load(out) as arrays:
        assert arrays["gradients.x"].dtype == np.float64
        assert arrays["gradients.x"].tolist() == [[2.0, 40.0]]
    printed = json.loads(ask("call", "square", "vjp", f"x=@{x}", "--dtype", "float64", "--json").out)
    assert printed == {"gradients.x": {"dtype": "float64", "shape": [1, 2], "data": [[2.0, 4.0]]}}
    ask("call", "square", "forward", "x=1,nan", "--dtype", "bfloat16", "--out", str(out))
    with np.load(out) as arrays:
        assert arrays["outputs.y"].dtype == np.float32
    printed = json.loads(ask("call", "square", "forward", "x=1,nan", "--dtype", "bfloat16", "--json").out)
    assert printed["outputs.y"] == {"dtype": "bfloat16", "shape": [2], "data": [1.0, "NaN"]}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["call", "sqare", "forward", "x=1"], "unknown op 'sqare'; did you mean square?"),
        (["call", "square", "backward", "x=1"], "expected one of forward, gradients"),
        (["call", "square", "frward", "x=1"], "got 'frward' (did you mean forward?)"),
        (["show", "sqare.vjp"], "unknown op 'sqare.vjp'; did you mean square?"),
        (["show", "square.vpj"], "did you mean vjp or jvp?"),
        (["verify", "relo", "x=1", "gx=1"], "unknown op 'relo'; did you mean relu"),
        (["check", "square", "sqare"], "unknown op 'sqare'; did you mean square?"),
        (["call", "square", "forward", "input.x=1"], "(did you mean inputs.x?)"),
        (["call", "square", "forward", "x=1e400"], "x: expected a magnitude below 1.8e308"),
        (["call", "scale_gradient", "vjp", "x=1", "scale=1e400"], "scale: expected a magnitude below 1.8e308"),
        (["call", "scale_gradient", "vjp", "x=1", "scale=@no.json"], "scale: cannot read no.json"),
        (["call", "square", "gradients", "x=1", "--order", "0"], "order"),
        (["call", "square", "forward", "z=1"], "z: unknown name for square forward; it takes x"),
        (["call", "square", "forward", "dy=1"], "dy: unknown name for square forward"),
        (["call", "scale_gradient", "vjp", "x=1", "scal=2"], "did you mean scale?"),
        (["call", "square", "forward", "x"], "expected NAME=VALUE"),
        (["call", "square", "forward", "x=1", "inputs.x=2"], "duplicate name; set inputs.x only once"),
        (["call", "square", "forward", "x=one"], "expected @file.npy, @file.json, 1,2,3"),
        (["call", "square", "forward", "x=[1,"], "expected @file.npy"),
        (["call", "square", "forward", "x=@nothing.npy"], "cannot read nothing.npy: No such file"),
        (["call", "square", "forward", "x=@pyproject.toml"], "ends in .npy or .json"),
        (["call", "square", "forward", "x=1", "--order", "2"], "--order: expected operation gradients, got forward"),
        (["call", "square", "forward", "x=1", "--mode", "fast"], "mode"),
        (["call", "square", "forward", "x=1", "--out", "/nowhere/x.npz"], "cannot write /nowhere/x.npz"),
        (["call", "square", "jvp", "x=1"], "tangents"),
        (["verify", "square", "x=1"], "expected a gradient, such as gx="),
        (["verify", "square", "x=1", "gx=1,2"], "shape mismatch"),
        (["check", "square", "nothing"], "nothing"),
        (["check", "square", "--check", "luck"], "checks"),
    ],
)
def test_errors_are_one_line(ask, args: list[str], message: str) -> None:
    assert message in ask(*args).error


def test_verify(ask, tmp_path) -> None:
    x, mine = np.linspace(1, 2, 64), tmp_path / "mine.npy"
    np.save(tmp_path / "x.npy", x)
    wrong = 2 * x
    wrong[17] += 0.5
    for gradient, code in ((2 * x, 0), (wrong, 1)):
        np.save(mine, gradient)
        for arguments in ([f"gx=@{mine}"], ["--gradient", f"x=@{mine}"]):
            result = ask("verify", "square", f"x=@{tmp_path / 'x.npy'}", "dy=" + "1," * 64, *arguments)
            assert (result.code, result.err) == (code, "")
    assert result.out.startswith("FAIL square gradient of x\n")
    assert "worst element [17]" in result.out
    assert "rows 16 to 17: 1 wrong" in result.out


def test_a_verdict_as_json_is_the_document_of_the_service(ask, client) -> None:
    for text, gradient, code in (("2,5,nan", [2, 5, "NaN"], 1), ("2,4,6", [2, 4, 6], 0)):
        result = ask("verify", "square", "x=1,2,3", f"gx={text}", "--json")
        assert (result.code, result.err) == (code, "")
        body = {"inputs": {"x": [1, 2, 3]}, "gradients": {"x": gradient}}
        assert json.loads(result.out) == client.post("/v1/ops/square/verify", json=body).json()


def test_one_wrong_row_is_named_alone(ask) -> None:
    assert "\n  row 1: 1 wrong, " in ask("verify", "square", "x=1,2,3", "gx=2,5,6").out


def test_check(process, tmp_path) -> None:
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


@pytest.mark.parametrize("args", COMMANDS, ids=lambda args: args[0])
@pytest.mark.parametrize("state", ["dead", "slow", "other"])
def test_no_service_is_a_one_line_error(run, fake_server, args: list[str], state: str) -> None:
    html = Response(200, b"<html>", {"content-type": "text/html"})
    server = fake_server(html if state == "other" else Response(is_held=True))
    url = server.url if state != "dead" else "http://127.0.0.1:9"
    message = {"dead": "cannot connect to", "slow": "within 0.1 s", "other": "is not Pullback"}[state]
    assert message in run(*args, "--timeout", "0.1" if state == "slow" else "60", url=url).error


def test_the_url_may_precede_the_command(run, service) -> None:
    assert run("--url", service.url, "ops", url="http://127.0.0.1:9").code == 0
    assert "nonsense" in run("--url", "nonsense", "ops").error


def test_a_truncated_stream_of_checks_is_an_error(run, fake_server, tmp_path) -> None:
    server = fake_server(event_stream(*stream(PASSING)[:-1], is_cut=True))
    result = run("check", "--junit", str(tmp_path / "x"), url=server.url)
    assert result.out.startswith("square: pass")
    assert "closed the connection" in result.error
    assert not (tmp_path / "x").exists()


def test_a_closed_pipe_prints_no_error(service) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    for args in (["ops"], ["call", "square", "forward", "x=1", "--json"]):
        done = subprocess.run(
            command(*args), env=client_environment(service.url), stdout=writer, stderr=subprocess.PIPE, check=False
        )
        assert (done.returncode, done.stderr) == (141, b"")
    os.close(writer)


def test_a_fault_of_the_command_line_has_not_the_code_of_a_wrong_gradient(run, monkeypatch) -> None:
    def fault(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr("pullback.cli.commands.client", fault)
    result = run("ops")
    assert (result.code, result.out) == (2, "")
    assert result.err.endswith("ZeroDivisionError: planted\n")


def test_a_full_disk_is_a_one_line_error(service) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command("ops"), env=client_environment(service.url), stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 2
    assert done.stderr == b"pullback: cannot write the output: No space left on device\n"


def test_ctrl_c_prints_and_writes_what_was_checked(fake_server, tmp_path) -> None:
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
    assert first == "square: pass (1 passed, 1 skipped; 0.52 s)\n"
    # The signal may arrive within a print, and rich then prints the line twice.
    assert rest.removeprefix(first) == "interrupted: 1 of 2 ops are checked\n"
    assert (running.returncode, err) == (130, "")
    assert [report["op"] for report in json.loads(file.read_text())["reports"]] == ["square"]
    assert server.finished.wait(PATIENCE_S)


def test_reports_on_standard_output_are_nothing_but_json(process) -> None:
    done = process("check", "square", "--check", "contract", "--json", "-")
    assert done.code == 0
    assert [report["op"] for report in json.loads(done.out)["reports"]] == ["square"]
    assert done.err.startswith("square: pass (")


def test_the_catalogue_as_json(ask, client) -> None:
    assert json.loads(ask("ops", "--json").out) == client.get("/v1/ops").json()
    assert json.loads(ask("show", "roi_pool", "--json").out) == client.get("/v1/ops/roi_pool").json()
    assert "unknown op" in ask("show", "nothing", "--json").error


@pytest.mark.slow
def test_a_terminal_gets_colours_and_a_table(service) -> None:
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
    pieces = []
    try:
        while piece := os.read(terminal, 4096):
            pieces.append(piece)
    except OSError:  # Linux raises EIO when the other side of the terminal is closed
        pass
    os.close(terminal)
    return b"".join(pieces).decode()


@pytest.mark.slow
def test_serve_runs_the_service_from_anywhere(tmp_path) -> None:
    (tmp_path / "app.py").write_text("raise SystemExit('the wrong app')\n")
    environ = environment() | {"PYTHONPATH": str(ROOT), "PULLBACK_URL": "http://x"}
    with subprocess.Popen(
        [sys.executable, "-m", "pullback", "serve", "--port", "0"],
        cwd=tmp_path,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout
        assert READY.match(running.stdout.readline())
        running.terminate()
        _, err = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0
    assert "PULLBACK_URL" not in err
    assert "is not a setting" not in err


def test_serve_without_the_service_says_how_to_get_it(tmp_path) -> None:
    shutil.copytree(ROOT / "pullback", tmp_path / "pullback", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pullback", "serve"],
        cwd=tmp_path,
        env=client_environment() | {"PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert 'pip install "pullback[serve]"' in done.stderr
    assert "make serve" in done.stderr
    assert Path(tmp_path / "pullback" / "cli" / "__init__.py").is_file()
