"""The service as its users run it: a separate process, on a free port."""

import contextlib
import functools
import gc
import importlib
import os
import queue
import re
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

import httpx
import pytest

from tests.forked import Forked
from tests.patience import PATIENCE_S
from tests.work_units import UnitScheduling, in_order, is_of_slow_op

if TYPE_CHECKING:
    from tests.threaded_service import ThreadedService

# TensorFlow reads these as it is imported. Test processes share few cores: threads that hand small kernels to each
# other take a third of the time. A service process does without them.
ONE_THREAD = {"TF_NUM_INTEROP_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}
os.environ |= ONE_THREAD
# As `make` does: Python keeps what it compiles, here and in the processes that tests start.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

ROOT = Path(__file__).parents[1]
READY = re.compile(r"Pullback is ready on ([^\s\"]+)(?: \(docs: ([^\s\"]+)\))?")


class Service:
    """A process of the service, started by ``forked`` or ``launched``."""

    def __init__(self, process: subprocess.Popen[str] | Forked, log: IO[bytes]) -> None:
        self._log = log
        self.process = process
        self.printed: list[str] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.url = ""

    @classmethod
    def forked(cls, log: IO[bytes], **settings: str) -> "Service":
        """Start it with settings, each without its prefix: ``Service.forked(log, MAX_JSON_MB="1")``."""
        return cls(Forked(ROOT, environment(**settings), log), log)

    @classmethod
    def launched(cls, log: IO[bytes], **settings: str) -> "Service":
        """Start it in a new interpreter, which takes seconds longer."""
        process = subprocess.Popen(
            [sys.executable, "-m", "app"],
            cwd=ROOT,
            env=environment(**settings),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            # In a separate process group, as in a terminal: Ctrl-C goes to all processes of a group.
            start_new_session=True,
        )
        return cls(process, log)

    def _read(self) -> None:
        assert self.process.stdout
        with self.process.stdout as stdout:
            for line in stdout:
                self._lines.put(line)
        self._lines.put("")

    def line(self) -> str:
        """Return the next line that it prints, "" at the end."""
        line = self._lines.get(timeout=PATIENCE_S)
        self.printed.append(line)
        return line

    def wait_until_ready(self) -> "Service":
        found = READY.search(self.line())
        assert found, f"no ready line but {self.printed}; the log:\n{self.log()}"
        self.url = found[1]
        return self

    def workers(self) -> list[int]:
        """Return the process ids of the workers there are, where there are several."""
        pid, found = self.process.pid, list[int]()
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                if Path(f"/proc/{child}/comm").read_text(encoding="ascii") == "pullback worker\n":
                    found.append(int(child))
        return found

    def wait_until_warm(self) -> "Service":
        self.log_with(" warmed up ")
        return self

    @property
    def port(self) -> int:
        return port_of(self.url)

    def log(self) -> str:
        """Return what it has written to stderr so far."""
        descriptor = self._log.fileno()
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode()

    def log_with(self, text: str, count: int = 1) -> str:
        """Return the log when it has the text so many times: the service writes it in the background."""
        until = time.monotonic() + PATIENCE_S
        while (log := self.log()).count(text) < count:
            assert time.monotonic() < until, f"expected {count} times {text!r} in the log:\n{log}"
            time.sleep(0.01)
        return log

    def client(self) -> httpx.Client:
        return client_of(self.url)

    def wait(self) -> int:
        """Wait for its end; return the exit code."""
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        """End it, whatever it does."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(PATIENCE_S)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)


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
    return httpx.Client(base_url=url, timeout=PATIENCE_S, trust_env=False, verify=trusted())


@functools.cache
def trusted() -> ssl.SSLContext:
    """Return the TLS context of all clients: to read the certificates takes 25 ms, and thousands of tests have one."""
    return httpx.create_ssl_context()


# Dozens of services that warm themselves up would take the cores from the tests. A busy machine may take a minute to
# trace an op, so a deadline that no test sets is longer, and yet shorter than the patience of the client. A process of
# checks takes seconds of CPU to start; the service that all tests share has one.
DEFAULTS = {
    **{"PORT": "0", "DRAIN_S": "0", "WARM_UP": "0", "CHECK_PROCESSES": "0"},
    "DEADLINE_S": str(PATIENCE_S - 60),
}


def environment(**settings: str) -> dict[str, str]:
    """Return this environment with these settings and no others; by default a free port, no draining, no warm-up."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PULLBACK_", *ONE_THREAD))}
    return kept | {f"PULLBACK_{name}": value for name, value in (DEFAULTS | settings).items()}


Start = Callable[..., Service]
Serve = Callable[..., "ThreadedService"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--url", help="ask the service there, and skip the tests that start another")
    parser.addoption("--examples", type=int, help="test every path of the OpenAPI documents with that many examples")


WARNINGS = (
    "error",
    # Starlette's test client would like httpx2, a successor of httpx that nothing else here uses.
    "ignore:Using `httpx` with `starlette.testclient`",
    # Hypothesis sees when other threads draw from `random`, such as those of a service in this process.
    "ignore:Do not use the `random` module inside strategies",
    # A trace that takes too long is ended by an exception, which may arrive in the callback of a weak reference.
    "ignore:Exception ignored in. <function WeakValueDictionary:pytest.PytestUnraisableExceptionWarning",
)


def pytest_configure(config: pytest.Config) -> None:
    for line in WARNINGS:
        config.addinivalue_line("filterwarnings", line)


# Four processes keep two cores busy, because tests wait for services.
PROCESSES = 4


# Before xdist starts its processes.
@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Run named files in this process: each of the others takes 13 s of CPU to import TensorFlow and all tests.

    Which tests share a process, and their order, is in ``tests.work_units``.
    """
    config.option.markexpr = config.option.markexpr or "not docker and not thorough"
    # Also asked in the processes of xdist.
    if hasattr(config, "workerinput") or not config.pluginmanager.hasplugin("xdist"):
        return
    config.option.dist, config.option.loadscopereorder = "loadscope", False
    if config.option.numprocesses is None:
        files = [Path(name.partition("::")[0]) for name in config.args]
        config.option.numprocesses = 0 if all(file.suffix == ".py" for file in files) else PROCESSES


# Before pytest selects by marks.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases of slow ops as slow, and as thorough all cases of a test but one of every ``share(n)``."""
    cases = Counter[str]()
    for item in items:
        if is_of_slow_op(item.nodeid):
            item.add_marker("slow")
        if share := item.get_closest_marker("share"):
            test = item.nodeid.partition("[")[0]
            if cases[test] % share.args[0]:
                item.add_marker("thorough")
            cases[test] += 1
    items[:] = in_order(items)


def pytest_collection_finish() -> None:
    """Leave what the imports created, most of it TensorFlow's, out of every later collection of garbage."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> UnitScheduling:
    return UnitScheduling(config, log)


def starting(request: pytest.FixtureRequest, made: Start = Service.forked) -> Iterator[Start]:
    """Start services with other settings; one may not become ready: see ``Service.wait_until_ready``."""
    if request.config.getoption("url"):
        pytest.skip("starts another service")
    with contextlib.ExitStack() as stack:

        def started(**settings: str) -> Service:
            one = made(stack.enter_context(tempfile.TemporaryFile()), **settings)
            stack.callback(one.close)
            return one

        yield started


@pytest.fixture
def launch(request: pytest.FixtureRequest) -> Iterator[Start]:
    """Start services as ``start`` does, each in a new interpreter."""
    yield from starting(request, Service.launched)


start = pytest.fixture(starting)
start_for_module = pytest.fixture(scope="module")(starting)
start_for_session = pytest.fixture(scope="session")(starting)


def serving(request: pytest.FixtureRequest) -> Iterator[Serve]:
    """Serve with other settings, each service on a thread of this process: see ``tests.threaded_service``."""
    if request.config.getoption("url"):
        pytest.skip("starts another service")
    # Imported here, so that tests without a service do not wait for TensorFlow.
    made = importlib.import_module("tests.threaded_service").ThreadedService
    with contextlib.ExitStack() as stack:

        def served(**settings: str) -> "ThreadedService":
            one = made(**settings)
            stack.callback(one.close)
            return one

        yield served


serve = pytest.fixture(serving)
serve_for_module = pytest.fixture(scope="module")(serving)


@pytest.fixture(scope="session")
def service(request: pytest.FixtureRequest) -> Iterator[Service | Distant]:
    """The service with default limits, one for all tests, which it must survive."""
    if url := request.config.getoption("url"):
        yield Distant(url)
        return
    one = request.getfixturevalue("start_for_session")(CHECK_PROCESSES="1").wait_until_ready()
    yield one
    assert one.process.poll() is None, f"the service has ended; its log:\n{one.log()}"


@pytest.fixture
def client(service: Service) -> Iterator[httpx.Client]:
    with service.client() as one:
        yield one


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the service's log to the report of a test that failed on it."""
    report = yield
    one = getattr(item, "funcargs", {}).get("service")
    if report.failed and isinstance(one, Service):
        report.sections.append(("log of the service", one.log()[-8000:]))
    return report
