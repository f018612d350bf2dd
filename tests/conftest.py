"""The service as its users meet it: a process of its own, on a free port."""

import contextlib
import os
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NoReturn

import httpx
import pytest

ROOT = Path(__file__).parents[1]
START_S, STOP_S = 120, 60
READY = re.compile(r"Pullback is ready on (http://\S+) \(docs: (\S+)\)")


class Service:
    """``python -m app`` with settings, each without its prefix: ``Service(log, MAX_JSON_MB="1")``."""

    def __init__(self, log: IO[bytes], **settings: str) -> None:
        self._log = log
        self.process = subprocess.Popen(
            [sys.executable, "-m", "app"],
            cwd=ROOT,
            env=environment(**settings),
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            # A group of its own, as in a terminal: Ctrl-C goes to all of a group.
            start_new_session=True,
        )
        self.printed: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.url = ""

    def _read(self) -> None:
        assert self.process.stdout
        with self.process.stdout as stdout:
            for line in stdout:
                self._lines.put(line)
        self._lines.put("")

    def line(self) -> str:
        """Return the next line that it prints, "" at the end."""
        line = self._lines.get(timeout=START_S)
        self.printed.append(line)
        return line

    def wait_until_ready(self) -> "Service":
        found = READY.match(self.line())
        assert found, f"no ready line but {self.printed}; the log:\n{self.log()}"
        self.url = found[1]
        return self

    def workers(self) -> list[int]:
        """Return the process ids of the workers there are, where there are several."""
        pid, found = self.process.pid, list[int]()
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(int(child))
        return found

    def wait_until_warm(self) -> "Service":
        until = time.monotonic() + START_S
        while " warmed up " not in self.log():
            assert time.monotonic() < until, self.log()
            time.sleep(0.05)
        return self

    @property
    def port(self) -> int:
        return port_of(self.url)

    def log(self) -> str:
        """Return what it has written to stderr so far."""
        descriptor = self._log.fileno()
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode()

    def client(self) -> httpx.Client:
        return client_of(self.url)

    def wait(self) -> int:
        """Wait for its end; return the exit code."""
        return self.process.wait(STOP_S)

    def close(self) -> None:
        """End it, whatever it does."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_S)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(STOP_S)
        self._reader.join(STOP_S)


class Distant:
    """A service that runs elsewhere, in a container for one: tests that look into its process are skipped."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    @property
    def port(self) -> int:
        return port_of(self.url)

    def wait_until_warm(self) -> "Distant":
        return self

    def client(self) -> httpx.Client:
        return client_of(self.url)

    def __getattr__(self, name: str) -> NoReturn:
        pytest.skip(f"the {name} of a service that runs elsewhere")


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def client_of(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=60, trust_env=False)


def environment(**settings: str) -> dict[str, str]:
    """Return this environment with these settings and no others; by default a free port, no draining, no warm-up."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PULLBACK_")}
    # Dozens of services that warm themselves up would take the cores from the tests.
    defaults = {"PORT": "0", "DRAIN_S": "0", "WARM_UP": "0"}
    return kept | {f"PULLBACK_{name}": value for name, value in (defaults | settings).items()}


Start = Callable[..., Service]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--url", help="ask the service there, and skip the tests that need one of their own")


def starting(request: pytest.FixtureRequest) -> Iterator[Start]:
    """Start services with other settings; one may not become ready: see ``Service.wait_until_ready``."""
    if request.config.getoption("url"):
        pytest.skip("needs a service of its own")
    with contextlib.ExitStack() as stack:

        def started(**settings: str) -> Service:
            one = Service(stack.enter_context(tempfile.TemporaryFile()), **settings)
            stack.callback(one.close)
            return one

        yield started


start = pytest.fixture(starting)
start_for_module = pytest.fixture(scope="module")(starting)
start_for_session = pytest.fixture(scope="session")(starting)


@pytest.fixture(scope="session")
def service(request: pytest.FixtureRequest) -> Iterator[Service | Distant]:
    """The service with default limits, one for all tests, which it must survive."""
    if url := request.config.getoption("url"):
        yield Distant(url)
        return
    one = request.getfixturevalue("start_for_session")().wait_until_ready()
    yield one
    assert one.process.poll() is None, f"the service has ended; its log:\n{one.log()}"


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    with service.client() as one:
        yield one


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Add the service's log to the report of a test that failed on it."""
    report = yield
    one = getattr(item, "funcargs", {}).get("service")
    if report.failed and isinstance(one, Service):
        report.sections.append(("log of the service", one.log()[-8000:]))
    return report
