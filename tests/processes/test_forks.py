"""Copies of a process: how they end, and what stays as it was where there can be none."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.processes.forks import BROKEN, STOPS, start_copy
from tests.conftest import ROOT
from tests.patience import PATIENCE_S


@pytest.mark.parametrize(("run", "status"), [(lambda: 3, 3), (lambda: None, 0), (lambda: 1 // 0, BROKEN)])
def test_a_copy_exits_with_the_status_of_its_function(run, status):
    assert start_copy("a copy", run).wait(PATIENCE_S) == status


def test_a_copy_has_a_name_and_ends_at_a_signal_as_a_new_process_does(tmp_path):
    def run() -> None:
        (tmp_path / "name").write_text(Path("/proc/self/comm").read_text(encoding="ascii"), encoding="ascii")
        os.kill(os.getpid(), signal.SIGTERM)

    assert start_copy("a copy", run).wait(PATIENCE_S) == -signal.SIGTERM
    assert (tmp_path / "name").read_text(encoding="ascii") == "a copy\n"


def test_signals_are_not_blocked_where_there_can_be_no_copy(monkeypatch):
    def refuse() -> int:
        raise OSError(errno.EAGAIN, "no process is left")

    monkeypatch.setattr(os, "fork", refuse)
    with pytest.raises(OSError, match="no process is left"):
        start_copy("a copy", lambda: None)
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {*STOPS}


WITHOUT_FILES = """
import os, resource, signal
from app.processes.forks import start_copy
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
try:
    start_copy("a copy", signal.pause)
except OSError as error:
    print(error.strerror)
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no child")
"""


def test_no_copy_is_left_that_nothing_can_watch():
    """In a process without libraries, some of which abort a copy that can open no file."""
    ran = subprocess.run([sys.executable, "-c", WITHOUT_FILES], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.stdout.splitlines(), ran.returncode) == (["Too many open files", "no child"], 0), ran.stderr
