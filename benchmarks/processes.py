"""The servers: an environment for each, created on first use and kept, and a process on a free port."""

import hashlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).parents[1]
SERVERS = ROOT / "benchmarks" / "servers"
BUILD = ROOT / "build" / "bench"
HOST = "127.0.0.1"
# PyTriton's binaries are linked with the shared library of Debian's Python, which other builds lack.
DEBIAN_PYTHON = "/usr/bin/python3.11"
START_S, STOP_S, INSTALL_S = 120.0, 10.0, 1200.0
JSON_MB, DRAIN_S = 64, 0
# Linux has a clock for the CPU time of every process; clock_getcpuclockid(3) composes its number like this.
CPU_CLOCK = 2
# A placeholder for a temporary folder of the server, removed when it stops: Tesseract records every request.
SCRATCH = "{scratch}"


class Unavailable(Exception):
    """A server is unavailable on this machine; the message is the reason, in one line."""


@dataclass(frozen=True)
class Recipe:
    """How to start a server: its command at a port, the path that answers once it is up, and its Python.

    ``environment`` adds to the process's variables, ``pinned`` says whether it has a separate environment, and
    ``shares`` names the server whose environment it uses, if any.
    """

    command: Callable[[Path, int], list[str]]
    ready: str
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    python: str = sys.executable
    pinned: bool = True
    shares: str = ""


def script(name: str) -> Callable[[Path, int], list[str]]:
    """Return the command of ``servers/NAME.py``.

    Nothing is imported from its folder, because some of its files have the names of packages.
    """
    return lambda python, port: [str(python), "-P", str(SERVERS / f"{name}.py"), str(port)]


def module(name: str) -> Callable[[Path, int], list[str]]:
    """Return the command of a module, which may import others of the benchmarks."""
    return lambda python, port: [str(python), "-m", name, str(port)]


def tesseract(python: Path, port: int) -> list[str]:
    """Return the command that Tesseract's containers run."""
    return [str(python.with_name("tesseract-runtime")), "serve", "--host", HOST, "--port", str(port)]


def pullback(name: str, **variables: str) -> Recipe:
    """Return the recipe for a module that runs Pullback."""
    own = {"PULLBACK_MAX_JSON_MB": str(JSON_MB), "PULLBACK_DRAIN_S": str(DRAIN_S), "TF_CPP_MIN_LOG_LEVEL": "2"}
    return Recipe(lambda python, port: [str(python), "-m", name], "/health/ready", {**own, **variables}, pinned=False)


RECIPES = {
    "pullback": pullback("app"),
    "pullback_ordinary": pullback("app", PULLBACK_EXPRESS="0"),
    "pullback_counted": pullback("benchmarks.servers.counted", COUNT_FILE=f"{SCRATCH}/calls"),
    "umbridge_numpy": Recipe(script("umbridge_numpy"), "/Info"),
    "umbridge_tensorflow": Recipe(script("umbridge_tensorflow"), "/Info", {"TF_CPP_MIN_LOG_LEVEL": "2"}),
    "tesseract": Recipe(
        tesseract,
        "/health",
        {
            "TESSERACT_API_PATH": str(SERVERS / "tesseract_api.py"),
            "TESSERACT_OUTPUT_PATH": SCRATCH,
        },
    ),
    "triton": Recipe(script("triton"), "/v2/models/log1pexp/ready", python=DEBIAN_PYTHON),
    "mlserver": Recipe(script("mlserver_numpy"), "/v2/models/log1pexp/ready"),
    "umbridge_stock": Recipe(script("umbridge_stock"), "/Info", shares="umbridge_numpy"),
    "tesseract_stock": Recipe(
        tesseract,
        "/health",
        {
            "TESSERACT_API_PATH": str(SERVERS / "tesseract_stock.py"),
            "TESSERACT_OUTPUT_PATH": SCRATCH,
        },
        shares="tesseract",
    ),
    "umbridge_ops": Recipe(module("benchmarks.servers.umbridge_ops"), "/Info", shares="umbridge_numpy"),
    "triton_stock": Recipe(
        script("triton_stock"), "/v2/models/log1pexp.vjp/ready", python=DEBIAN_PYTHON, shares="triton"
    ),
    "echo": Recipe(script("echo"), "/", pinned=False),
    "sockets": Recipe(script("sockets"), "/", pinned=False),
}


def install(name: str, recipe: Recipe) -> Path:
    """Return the Python of a server's environment; create it if it is missing or has other versions."""
    if not recipe.pinned:
        return Path(sys.executable)
    if shutil.which(recipe.python) is None:
        raise Unavailable(f"it needs {recipe.python}, which is not here")
    name = recipe.shares or name
    folder, pins = BUILD / name, SERVERS / f"{name}.txt"
    python, stamp = folder / "bin" / "python", folder / ".installed"
    version = f"{recipe.python} {hashlib.sha256(pins.read_bytes()).hexdigest()}"
    if not (stamp.exists() and stamp.read_text() == version):
        print(f"Installing {name} into {folder.relative_to(ROOT)}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        _run([recipe.python, "-m", "venv", str(folder)])
        _run([str(python), "-m", "pip", "install", "-q", "--no-input", "--no-deps", "-r", str(pins)])
        stamp.write_text(version)
    return python


def versions(name: str, *packages: str) -> str:
    """Return the versions of packages in a server's pins."""
    lines = (SERVERS / f"{name}.txt").read_text().replace("_", "-").splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    return ", ".join(f"{package} {pins[package]}" for package in packages)


def environment() -> dict[str, str]:
    """Return this process's variables, without those that would make a server import foreign modules."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, env=environment(), capture_output=True, text=True, timeout=INSTALL_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"its installation took more than {INSTALL_S:.0f} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["no reason was given"]
        raise Unavailable(f"it could not be installed: {quoted(lines[-1])}")


class Server:
    """A server in a separate process and process group; as a context manager it stops at the end."""

    def __init__(self, name: str, root: Path = ROOT, python: Path | None = None) -> None:
        """Start it and wait until it answers; raise ``Unavailable`` if it does not.

        Pullback may be started from the checkout ``root`` of another version, with the ``python`` of that one.
        """
        recipe = RECIPES[name]
        self.name, self.port = name, free_port()
        python = python or install(name, recipe)
        (BUILD / "logs").mkdir(parents=True, exist_ok=True)
        self._log = BUILD / "logs" / f"{name}.log" if root == ROOT else BUILD / "logs" / f"{name}-{root.name}.log"
        self._scratch = tempfile.TemporaryDirectory(prefix="pullback-bench-")
        self.scratch = Path(self._scratch.name)
        own = {"PULLBACK_HOST": HOST, "PULLBACK_PORT": str(self.port)}
        variables = {key: value.replace(SCRATCH, self._scratch.name) for key, value in recipe.environment.items()}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                recipe.command(python, self.port),
                cwd=root,
                env={**environment(), **own, **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait(recipe.ready)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    def rss_mb(self) -> float:
        """Return its resident memory in MB."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS:"))

    def cpu_s(self) -> dict[int, float]:
        """Return the CPU seconds of its process and of each descendant, by id; threads that have ended count too."""
        found = dict[int, float]()
        for pid in _family(self._process.pid):
            with suppress(OSError):
                found[pid] = time.clock_gettime(~pid << 3 | CPU_CLOCK)
        return found

    def cpu_since(self, before: Mapping[int, float]) -> float:
        """Return the CPU seconds that it has spent since ``cpu_s`` returned ``before``."""
        return sum(seconds - before.get(pid, 0.0) for pid, seconds in self.cpu_s().items())

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to its process."""
        self._process.send_signal(number)

    def get(self, path: str, timeout_s: float = 10.0) -> tuple[int, bytes]:
        """Return the status and the body of a GET."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=timeout_s)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def stop(self) -> None:
        """End its process group: terminate it, then kill it."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._scratch.cleanup()

    def _wait(self, ready: str) -> None:
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise Unavailable(f"it stopped as it started: {self._last_words()}")
            with suppress(OSError):
                if self.get(ready)[0] == http.client.OK:
                    return
            time.sleep(0.2)
        self.stop()
        raise Unavailable(f"it was not ready after {START_S:.0f} s: {self._last_words()}")

    def _last_words(self) -> str:
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return quoted(lines[-1]) if lines else "no word of why"


def exit_on_sigterm() -> None:
    """Let SIGTERM end this process by an exception, so that its servers are stopped."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def _family(pid: int) -> Iterator[int]:
    yield pid
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        # A thread may end meanwhile.
        with suppress(OSError):
            for child in path.read_text().split():
                yield from _family(int(child))


def quoted(line: str) -> str:
    """Return a line of a log for the page: shortened, and without the path of this folder."""
    return line.strip().replace(f"{ROOT}/", "")[:160]


def free_port() -> int:
    """Return a free port whose successor is free too: some servers always serve a second protocol besides HTTP."""
    for _ in range(100):
        with socket.socket() as first, socket.socket() as second:
            first.bind((HOST, 0))
            port = first.getsockname()[1]
            try:
                second.bind((HOST, port + 1))
            except (OSError, OverflowError):
                continue
            return port
    raise Unavailable("expected two free ports in a row, found none")
