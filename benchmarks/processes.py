"""The servers: the environment of each, made on first need and kept, and its process, on a free port."""

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
from collections.abc import Callable, Mapping
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
# Stands for a folder of the server's own, which is gone when it stops: Tesseract keeps a record of every request.
SCRATCH = "{scratch}"


class Unavailable(Exception):
    """Why there is no such server here, in a line."""


@dataclass(frozen=True)
class Recipe:
    """How a server is started: its command at a port, what it answers once it is up, and the Python it wants.

    ``environment`` adds to the process's variables, ``pinned`` tells whether it has an environment of its own, and
    ``shares`` whose it has where it shares one.
    """

    command: Callable[[Path, int], list[str]]
    ready: str
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    python: str = sys.executable
    pinned: bool = True
    shares: str = ""


def script(name: str) -> Callable[[Path, int], list[str]]:
    """Return the command of ``servers/NAME.py``.

    Nothing is imported from its folder, where some files are named as packages are.
    """
    return lambda python, port: [str(python), "-P", str(SERVERS / f"{name}.py"), str(port)]


def tesseract(python: Path, port: int) -> list[str]:
    """Return the command that Tesseract's containers run."""
    return [str(python.with_name("tesseract-runtime")), "serve", "--host", HOST, "--port", str(port)]


RECIPES = {
    "pullback": Recipe(
        lambda python, port: [str(python), "-m", "app"],
        "/health/ready",
        {"PULLBACK_MAX_JSON_MB": str(JSON_MB), "PULLBACK_DRAIN_S": str(DRAIN_S), "TF_CPP_MIN_LOG_LEVEL": "2"},
        pinned=False,
    ),
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
    "triton_stock": Recipe(
        script("triton_stock"), "/v2/models/log1pexp.vjp/ready", python=DEBIAN_PYTHON, shares="triton"
    ),
    "echo": Recipe(script("echo"), "/", pinned=False),
}


def installed(name: str, recipe: Recipe) -> Path:
    """Return the Python of a server's environment, made now where it is not there or has other versions."""
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
    """Return the versions of packages as a server's pins have them."""
    lines = (SERVERS / f"{name}.txt").read_text().replace("_", "-").splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    return ", ".join(f"{package} {pins[package]}" for package in packages)


def environment() -> dict[str, str]:
    """Return this process's variables, without those that would lead a server to other modules than its own."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, env=environment(), capture_output=True, text=True, timeout=INSTALL_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"its installation took more than {INSTALL_S:.0f} s") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["no reason was given"]
        raise Unavailable(f"it could not be installed: {quoted(said[-1])}")


class Server:
    """A server in a process, and a process group, of its own; as a context manager it is stopped at the end."""

    def __init__(self, name: str) -> None:
        """Start it, and wait until it answers; raise ``Unavailable`` where it does not."""
        recipe = RECIPES[name]
        self.name, self.port = name, free_port()
        python = installed(name, recipe)
        (BUILD / "logs").mkdir(parents=True, exist_ok=True)
        self._log = BUILD / "logs" / f"{name}.log"
        self._scratch = tempfile.TemporaryDirectory(prefix="pullback-bench-")
        own = {"PULLBACK_HOST": HOST, "PULLBACK_PORT": str(self.port)}
        told = {key: value.replace(SCRATCH, self._scratch.name) for key, value in recipe.environment.items()}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                recipe.command(python, self.port),
                cwd=ROOT,
                env={**environment(), **own, **told},
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
        """Return the memory that it holds, in MB."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmRSS:"))

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
        """End its process group: politely, and then for good."""
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


def quoted(line: str) -> str:
    """Return a line of a log as it may stand on a page: short, and without the place where this folder is."""
    return line.strip().replace(f"{ROOT}/", "")[:160]


def free_port() -> int:
    """Return a port that is free, and so is the next one: some servers insist on a second protocol beside HTTP."""
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
