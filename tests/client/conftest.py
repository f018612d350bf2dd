"""Fixtures that run the command line, in this process or another, and the client."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import pullback
from pullback.cli import main
from pullback.remotes import Derivative, Remote
from tests.client.both_clients import CLIENTS
from tests.client.counting import Counting
from tests.client.fake_servers import FakeServer, Response
from tests.client.raw_servers import RawServer
from tests.conftest import Service
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
needs_service = pytest.mark.skipif(find_spec("tensorflow") is None, reason="the service is not installed")


class Result(NamedTuple):
    """The exit code and the output of a command line."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line that a failed command prints on stderr."""
        assert self.code == 2, self
        assert self.err.startswith("pullback: "), self.err
        assert self.err.count("\n") == 1, self.err
        return self.err.rstrip("\n")


def client_environment(url: str | None = None) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PULLBACK_", "FORCE_COLOR"))}
    return {**inherited, "PYTHONPATH": str(ROOT), **({} if url is None else {"PULLBACK_URL": url})}


@pytest.fixture
def run(monkeypatch, capfd) -> Callable[..., Result]:
    """Run the command line in this process."""
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def call(*args: str, url: str | None = None) -> Result:
        monkeypatch.setattr(sys, "argv", ["pullback", *args])
        if url is not None:
            monkeypatch.setenv("PULLBACK_URL", url)
        capfd.readouterr()
        code = main()
        return Result(code, *capfd.readouterr())

    return call


@pytest.fixture
def ask(run, service: Service) -> Callable[..., Result]:
    """Run the command line in this process, with the URL of the service."""
    return lambda *args: run(*args, url=service.url)


def command(*args: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "pullback", *args]


@pytest.fixture
def process(service: Service) -> Callable[..., Result]:
    """Run the command line in its own process, with the URL of the service."""

    def call(*args: str) -> Result:
        done = subprocess.run(
            command(*args), env=client_environment(service.url), capture_output=True, text=True, check=False
        )
        return Result(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def python() -> Callable[[str], str]:
    """Run a program in a new Python process; return its output."""

    def call(program: str) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            env=client_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


@pytest.fixture
def api(service: Service) -> Iterator[pullback.Client]:
    """Return a ``pullback.Client`` of the service."""
    with pullback.Client(service.url, timeout=PATIENCE_S) as client:
        yield client


@pytest.fixture
def fake_server() -> Iterator[Callable[..., FakeServer]]:
    """Start servers that send these responses in turn, and then repeat the last one."""
    with ExitStack() as stack:

        def start(*responses: Response) -> FakeServer:
            server = FakeServer(responses)
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.stop)
            return server

        yield start


@pytest.fixture
def raw_server() -> Iterator[Callable[..., RawServer]]:
    """Start servers that answer each request with these bytes."""
    with ExitStack() as stack:

        def start(*pieces: bytes, **options: Any) -> RawServer:
            server = RawServer(*pieces, **options)
            stack.callback(server.stop)
            return server

        yield start


@pytest.fixture(params=CLIENTS)
def client_of(request) -> Callable[..., Any]:
    """Make clients: blocking ones, and asyncio ones with blocking methods in either event loop."""
    return CLIENTS[request.param]


@pytest.fixture
def transport() -> Iterator[Counting]:
    with closing(Counting()) as one:
        yield one


@pytest.fixture
def remote(service, transport) -> Callable[..., Derivative]:
    """Return an op as a function whose requests the transport counts."""

    def make(name: str, **attrs: Any) -> Derivative:
        one = Remote(name, service.url, attrs or None)
        one.client = pullback.Client(service.url, transport=transport)
        return Derivative(one)

    return make
