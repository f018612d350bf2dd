"""The release check: what it runs, what it skips and why, and its exit status."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import release_check
from tests.conftest import ROOT
from tests.patience import PATIENCE_S
from tests.release_check import Lacking, Step, docker_test, interpreter, main, run, run_all, table


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(release_check, "FOLDER", tmp_path)
    monkeypatch.setattr(release_check, "GRACE_S", 1)
    return tmp_path


def step(name: str, command: str) -> Step:
    return Step(name, lambda: command)


def lacking() -> str:
    raise Lacking("there is no sun")


STEPS = (step("one", "echo fine"), step("two", "echo broken >&2; exit 3"), Step("three", lacking))


def test_each_step_has_its_result(folder: Path):
    results = run_all(STEPS, ())
    assert [one.result for one in results] == ["passed", "failed", "skipped"]
    assert re.fullmatch(r"`echo fine`, \d+\.\d minutes", results[0].details)
    assert results[1].details == f"`echo broken >&2; exit 3` ended with status 3: see {folder / 'two.log'}"
    assert (folder / "two.log").read_text() == "broken\n"
    assert table(results).splitlines()[-1] == "| three | skipped | there is no sun |"


@pytest.mark.parametrize(("names", "status"), [((), 1), (("two",), 1), (("one",), 0), (("three",), 0), (("four",), 2)])
def test_the_exit_status_tells_of_failures(
    folder: Path, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], status: int
):
    monkeypatch.setattr(release_check, "STEPS", STEPS)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    assert main(*names) == status
    if status < 2:
        rows = (folder / "table.md").read_text().splitlines()[-3:]
        run_or_not = ["| not run | not named in STEPS |" not in row for row in rows]
        assert run_or_not == [not names or name in names for name in ("one", "two", "three")]


def test_a_step_that_does_not_end_fails_with_all_its_processes(folder: Path):
    found = run(step("endless", f"(sleep 900; touch {folder}/late) & echo $! > {folder}/pid; wait"), limit_s=1)
    assert found.result == "failed"
    assert "took longer than 1 s" in found.details
    assert ends(int((folder / "pid").read_text()))


def ends(pid: int) -> bool:
    """Return whether a process ends; a zombie has ended."""
    status = Path("/proc", str(pid), "stat")
    for _ in range(round(10 * PATIENCE_S)):
        if not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.1)
    return False


PROGRAM = """
import sys
from pathlib import Path
from tests import release_check
folder = Path(sys.argv[1])
release_check.FOLDER = folder
command = f"echo $$ > {folder}/new; mv {folder}/new {folder}/pid; exec sleep 900"
release_check.STEPS = (release_check.Step("endless", lambda: command),)
sys.exit(release_check.main())
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_step_and_leaves_a_table(folder: Path, number: int):
    with subprocess.Popen([sys.executable, "-c", PROGRAM, folder], cwd=ROOT, stdout=subprocess.PIPE, text=True) as one:
        for _ in range(600):
            if (folder / "pid").exists():
                break
            time.sleep(0.1)
        one.send_signal(number)
        out, _ = one.communicate(timeout=60)
    assert one.returncode == 1
    assert "| endless | failed | ended early |" in out
    assert ends(int((folder / "pid").read_text()))


def test_ctrl_c_leaves_a_table_and_fails(monkeypatch: pytest.MonkeyPatch):
    def interrupted() -> str:
        raise KeyboardInterrupt

    results = run_all((step("one", "true"), Step("two", interrupted), step("three", "true")), ())
    assert [one.result for one in results] == ["passed", "failed", "not run"]


def write_program(path: Path, *lines: str) -> None:
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with only a command that says how to get Python, and a Python without uv next to it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    write_program(tmp_path / "python3.12", "echo 'python3.12: command not found' >&2", "exit 127")
    return tmp_path


def test_a_command_that_is_no_python_is_not_taken_for_one(bare: Path):
    with pytest.raises(Lacking, match=r"neither the PATH nor uv has Python 3\.12, .*No such file or directory: .*/uv'"):
        interpreter("3.12")
    write_program(bare / "uv", '[ "$*" = "python find --managed-python 3.12" ] && echo found')
    assert interpreter("3.12") == "found"


def test_uv_installs_a_python_that_is_missing(bare: Path):
    """It installs into the folder of the check; its reason is the last line of its errors."""
    refusal = "printf 'error: Failed to install\\n  cause: the network is down\\n' >&2; exit 1"
    write_program(bare / "uv", refusal)
    with pytest.raises(Lacking, match=r"and uv cannot install it: the network is down$"):
        interpreter("3.12")
    install = '[ "$*" = "python install --no-bin 3.12" ] && echo x > "$UV_PYTHON_INSTALL_DIR" && exit'
    find = '[ "$*" = "python find --managed-python 3.12" ] && [ -e "$UV_PYTHON_INSTALL_DIR" ] && echo installed && exit'
    write_program(bare / "uv", install, find, refusal)
    assert interpreter("3.12") == "installed"
    assert (bare / "pythons").exists()


def test_every_target_exists(monkeypatch):
    """No Python is looked for: uv would try to download it."""
    monkeypatch.setattr(release_check, "interpreter", lambda minor: f"python{minor}")
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = []
    for one in release_check.STEPS:
        try:
            commands.append(one.command())
        except Lacking:
            continue
    named = re.findall(r"make (?:-C '\S+' )?([\w-]+)", " ".join(commands))
    assert len(named) == len(commands)
    assert set(named) <= targets


def test_docker_is_skipped_without_an_engine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    monkeypatch.setenv("START_DOCKER", "false")
    with pytest.raises(Lacking, match=r"no Docker engine|no command docker"):
        docker_test()
