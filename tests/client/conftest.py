"""The command line, in this process or in one of its own, and a Python that has the client alone."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

import pullback
from pullback.cli import main
from tests.client.strange_servers import Answer, Strange
from tests.conftest import Service
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]


class Ran(NamedTuple):
    """What a command line came to."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line of an error, with which nothing else is printed on stderr."""
        assert self.code == 2, self
        assert self.err.startswith("pullback: "), self.err
        assert self.err.count("\n") == 1, self.err
        return self.err.rstrip("\n")


def surroundings(url: str | None = None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PULLBACK_", "FORCE_COLOR"))}
    return {**kept, "PYTHONPATH": str(ROOT), **({} if url is None else {"PULLBACK_URL": url})}


@pytest.fixture
def run(monkeypatch, capfd) -> Callable[..., Ran]:
    """Run the command line in this process."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def ran(*args: str, url: str | None = None) -> Ran:
        monkeypatch.setattr(sys, "argv", ["pullback", *args])
        if url is not None:
            monkeypatch.setenv("PULLBACK_URL", url)
        capfd.readouterr()
        code = main()
        return Ran(code, *capfd.readouterr())

    return ran


@pytest.fixture
def ask(run, service: Service) -> Callable[..., Ran]:
    """Run it on the service."""
    return lambda *args: run(*args, url=service.url)


def command(*args: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "pullback", *args]


@pytest.fixture
def process(service: Service) -> Callable[..., Ran]:
    """Run it as a process on the service."""

    def ran(*args: str) -> Ran:
        done = subprocess.run(
            command(*args), env=surroundings(service.url), capture_output=True, text=True, check=False
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return ran


@pytest.fixture
def python() -> Callable[[str], str]:
    """Run a program in a fresh Python; return what it prints."""

    def ran(program: str) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            env=surroundings(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return ran


@pytest.fixture
def ours(service: Service) -> Iterator[pullback.Client]:
    """Our own client of the service."""
    with pullback.Client(service.url, timeout=PATIENCE_S) as client:
        yield client


@pytest.fixture
def strange() -> Iterator[Callable[..., Strange]]:
    """Start servers that give these answers in turn, and the last one ever after."""
    with ExitStack() as stack:

        def started(*answers: Answer) -> Strange:
            server = Strange(answers)
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.stop)
            return server

        yield started
