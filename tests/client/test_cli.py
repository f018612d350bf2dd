"""The command line on a real service, and where there is none."""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pullback
from tests.client.conftest import ROOT, command, surroundings
from tests.client.strange_servers import Answer, of_events, of_json
from tests.client.told import PASSING, stream
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


@pytest.mark.parametrize("args", [["--help"], [], *([name, "--help"] for name in ("serve", "call", "check", "verify"))])
def test_help_is_there(run, args: list[str]) -> None:
    assert "Usage: pullback" in "".join(run(*args)[1:])


def test_ops_are_listed(ask, ours) -> None:
    lines = ask("ops").out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [op.name for op in ours.ops()]
    assert lines == [line.rstrip() for line in lines]
    assert any("formula, then derivative; not linear" in line for line in lines)


def test_ops_that_are_unavailable_have_a_reason(run, strange) -> None:
    fields = {"summary": "", "mechanism": "", "claim": None, "available": False}
    listing = of_json({"ops": [{"name": "broken", "reason": "no [bold]such\x1b[31m module", **fields}]})
    assert run("ops", "--url", strange(listing).url).out.splitlines()[1].split() == [
        *("broken", "unavailable", "no", "[bold]such�[31m", "module")
    ]


def test_an_op_is_shown(ask) -> None:
    out = ask("show", "roi_pool").out
    for part in ("Max pooling over regions", "pooled_height  7", "integer >= 1 <= 64", "[R, 5]", "two_regions: "):
        assert part in out


def test_every_example_that_is_shown_can_be_called(ask) -> None:
    found = ask("show", "surrogate").out.partition("Examples\n")[2].splitlines()
    for line in found:
        assert ask("call", "surrogate", "forward", *line.partition(": ")[2].split()).code == 0
    assert len(found) > 3


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
def test_calls(ask, args: list[str], out: str) -> None:
    code, found, complaints = ask("call", *args)
    assert (code, complaints) == (0, "")
    assert found.endswith(out)


def test_arrays_come_from_files_and_go_into_them(ask, tmp_path) -> None:
    x, out = tmp_path / "x.npy", tmp_path / "out.npz"
    np.save(x, np.array([[1.0, 2.0]]))
    (tmp_path / "dy.json").write_text("[[1, 10]]")
    assert ask("call", "square", "vjp", f"x=@{x}", f"dy=@{tmp_path / 'dy.json'}", "--out", str(out)).out == ""
    with np.load(out) as found:
        assert found["gradients.x"].dtype == np.float64
        assert found["gradients.x"].tolist() == [[2.0, 40.0]]
    told = json.loads(ask("call", "square", "vjp", f"x=@{x}", "--dtype", "float64", "--json").out)
    assert told == {"gradients.x": {"dtype": "float64", "shape": [1, 2], "data": [[2.0, 4.0]]}}
    ask("call", "square", "forward", "x=1,nan", "--dtype", "bfloat16", "--out", str(out))
    with np.load(out) as found:
        assert found["outputs.y"].dtype == np.float32
    told = json.loads(ask("call", "square", "forward", "x=1,nan", "--dtype", "bfloat16", "--json").out)
    assert told["outputs.y"] == {"dtype": "bfloat16", "shape": [2], "data": [1.0, "NaN"]}


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["call", "sqare", "forward", "x=1"], "near it: square"),
        (["call", "square", "backward", "x=1"], "expected one of forward, gradients"),
        (["call", "square", "forward", "z=1"], "z: square forward takes no such name; it takes x"),
        (["call", "square", "forward", "dy=1"], "dy: square forward takes no such name"),
        (["call", "scale_gradient", "vjp", "x=1", "scal=2"], "did you mean scale?"),
        (["call", "square", "forward", "x"], "expected NAME=VALUE"),
        (["call", "square", "forward", "x=1", "inputs.x=2"], "given twice"),
        (["call", "square", "forward", "x=one"], "expected @file.npy, @file.json, 1,2,3"),
        (["call", "square", "forward", "x=[1,"], "expected @file.npy"),
        (["call", "square", "forward", "x=@nothing.npy"], "nothing.npy cannot be read: No such file"),
        (["call", "square", "forward", "x=@pyproject.toml"], "ends in .npy or .json"),
        (["call", "square", "forward", "x=1", "--order", "2"], "--order: expected with gradients, got forward"),
        (["call", "square", "forward", "x=1", "--mode", "fast"], "mode"),
        (["call", "square", "forward", "x=1", "--out", "/nowhere/x.npz"], "cannot be written"),
        (["call", "square", "jvp", "x=1"], "tangents"),
        (["verify", "square", "x=1"], "expected a gradient of yours"),
        (["verify", "square", "x=1", "gx=1,2"], "another shape"),
        (["check", "square", "nothing"], "nothing"),
        (["check", "square", "--check", "luck"], "checks"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(ask, args: list[str], told: str) -> None:
    assert told in ask(*args).complaint


def test_gradients_are_verified(ask, tmp_path) -> None:
    x, mine = np.linspace(1, 2, 64), tmp_path / "mine.npy"
    np.save(tmp_path / "x.npy", x)
    wrong = 2 * x
    wrong[17] += 0.5
    for gradient, code in ((2 * x, 0), (wrong, 1)):
        np.save(mine, gradient)
        for given in ([f"gx=@{mine}"], ["--gradient", f"x=@{mine}"]):
            ran = ask("verify", "square", f"x=@{tmp_path / 'x.npy'}", "dy=" + "1," * 64, *given)
            assert (ran.code, ran.err) == (code, "")
    assert ran.out.startswith("FAIL square gradient of x\n")
    assert "worst element [17]" in ran.out
    assert "rows 16 to 17: 1 wrong" in ran.out


def test_ops_are_checked(process, tmp_path) -> None:
    files = {name: tmp_path / name for name in ("json", "junit")}
    options = [word for name, path in files.items() for word in (f"--{name}", str(path))]
    ran = process("check", "square", "round_ste", "--check", "derivative", "--dtype", "float64", *options)
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert [line.partition(" (")[0] for line in lines[:2]] == ["square: pass", "round_ste: pass"]
    assert lines[2].startswith("2 passed, 0 failed, 0 inconclusive of 2 ops in ")
    assert [report["op"] for report in json.loads(files["json"].read_text())["reports"]] == ["square", "round_ste"]
    assert files["junit"].read_text().count("<testsuite ") == 2
    assert "\x1b" not in ran.out


@pytest.mark.parametrize("args", COMMANDS, ids=lambda args: args[0])
@pytest.mark.parametrize("state", ["dead", "slow", "other"])
def test_no_service_is_told_in_a_line(run, strange, args: list[str], state: str) -> None:
    html = Answer(200, b"<html>", {"content-type": "text/html"})
    server = strange(html if state == "other" else Answer(is_held=True))
    url = server.url if state != "dead" else "http://127.0.0.1:9"
    told = {"dead": "cannot connect to", "slow": "within 0.1 s", "other": "is not Pullback"}[state]
    assert told in run(*args, "--timeout", "0.1" if state == "slow" else "60", url=url).complaint


def test_the_url_may_stand_before_the_command(run, service) -> None:
    assert run("--url", service.url, "ops", url="http://127.0.0.1:9").code == 0
    assert "nonsense" in run("--url", "nonsense", "ops").complaint


def test_a_stream_that_breaks_off_cannot_tell(run, strange, tmp_path) -> None:
    server = strange(of_events(*stream(PASSING)[:-1], is_cut=True))
    ran = run("check", "--junit", str(tmp_path / "x"), url=server.url)
    assert ran.out.startswith("square: pass")
    assert "ended the connection" in ran.complaint
    assert not (tmp_path / "x").exists()


def test_a_closed_pipe_is_quiet(service) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    for args in (["ops"], ["call", "square", "forward", "x=1", "--json"]):
        done = subprocess.run(
            command(*args), env=surroundings(service.url), stdout=writing, stderr=subprocess.PIPE, check=False
        )
        assert (done.returncode, done.stderr) == (141, b"")
    os.close(writing)


def test_a_full_disk_is_told_in_a_line(service) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command("ops"), env=surroundings(service.url), stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 2
    assert done.stderr == b"pullback: the output cannot be written: No space left on device\n"


def test_ctrl_c_is_quiet(strange) -> None:
    server = strange(of_events(stream(PASSING)[0], is_held=True))
    with subprocess.Popen(
        command("check"), env=surroundings(server.url), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert server.came.wait(PATIENCE_S)
        running.send_signal(signal.SIGINT)
        out, complaints = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, out, complaints) == (130, b"", b"")
    assert server.left.wait(PATIENCE_S)


def test_a_terminal_has_colours_and_a_table(service) -> None:
    ours, theirs = pty.openpty()
    environ = surroundings(service.url) | {"TERM": "xterm", "COLUMNS": "100"}
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
    except OSError:  # how Linux ends a terminal whose other side is closed
        pass
    os.close(terminal)
    return b"".join(pieces).decode()


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
        _, complaints = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0
    assert "is no setting" not in complaints


def test_serve_says_where_to_get_the_service(tmp_path) -> None:
    shutil.copytree(ROOT / "pullback", tmp_path / "pullback", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pullback", "serve"],
        cwd=tmp_path,
        env=surroundings() | {"PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 2
    assert "make serve" in done.stderr
    assert Path(tmp_path / "pullback" / "cli.py").is_file()
