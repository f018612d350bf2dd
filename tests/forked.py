"""Processes that run ``python -m app``, forked from one that has imported the application.

TensorFlow's import takes six seconds of CPU, and dozens of tests start a service. The module ``app`` runs
in such a process from its first line; only its imports are done already, and the interpreter does not finalize itself
at the end. Tests of the end itself start a new interpreter instead.
"""

import contextlib
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from multiprocessing import forkserver
from multiprocessing.reduction import DupFd
from typing import IO, Any

from app.processes.forks import signal_at_parents_death

CONTEXT = multiprocessing.get_context("forkserver")


class Forked:
    """A process of ``python -m app``, with the part of the interface of ``subprocess.Popen`` that the tests need."""

    def __init__(self, folder: os.PathLike[str], environment: Mapping[str, str], stderr: IO[bytes]) -> None:
        """Start it in ``folder``, in a new session."""
        with _without_one_thread(environment):
            CONTEXT.set_forkserver_preload(["app.main", "app.http.server"])
            forkserver.ensure_running()
        reading, writing = os.pipe()
        # The process duplicates the descriptors that it receives.
        descriptors = [DupFd(writing), DupFd(stderr.fileno())]
        self._process = CONTEXT.Process(target=_run, args=(os.fspath(folder), dict(environment), *descriptors))
        self._process.start()
        os.close(writing)
        self.stdout = os.fdopen(reading, encoding="utf-8")
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        """Wait for the end and return the exit code; raises ``subprocess.TimeoutExpired``."""
        self._process.join(timeout)
        if (code := self._process.exitcode) is None:
            raise subprocess.TimeoutExpired(["python", "-m", "app"], timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


@contextlib.contextmanager
def _without_one_thread(environment: Mapping[str, str]) -> Generator[None]:
    """Hide the variables that this process has and a service lacks: TensorFlow reads some of them as it is imported."""
    hidden = {name: os.environ.pop(name) for name in [*os.environ] if name not in environment}
    try:
        yield
    finally:
        os.environ |= hidden


def _run(folder: str, environment: Mapping[str, str], stdout: Any, stderr: Any) -> None:
    # The parent ends with the process of the tests, also where that is killed.
    signal_at_parents_death(signal.SIGKILL)
    os.setsid()
    os.chdir(folder)
    for number, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), stdout.detach(), stderr.detach())):
        os.dup2(descriptor, number)
    sys.stdin = os.fdopen(0)  # uvicorn passes its descriptor to workers
    os.environ.clear()
    os.environ |= environment
    sys.argv = ["app"]
    runpy.run_module("app", run_name="__main__", alter_sys=True)
