"""Standard files that are closed, full, or without a reader stop nothing, and no line goes to another file."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import httpx
import pytest

from tests.conftest import ROOT, client_of, environment
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

APP = f"{sys.executable} -m app"
SERVE = f"{Path(sys.executable).parent}/pullback serve"
ALL_CLOSED = "<&- >&- 2>&-"
# What a shell can do to the files, with every pipe led to a process that has ended.
REDIRECTIONS = (
    "",
    ">&-",
    "2>&-",
    ">&- 2>&-",
    ALL_CLOSED,
    ">/dev/full",
    "2>/dev/full",
    ">/dev/full 2>/dev/full",
    "PIPE",
)


@pytest.fixture
def abandoned() -> Iterator[int]:
    """The writing end of a pipe without a reader."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


def launched(command: str, redirection: str, abandoned: int, **settings: str) -> subprocess.Popen[bytes]:
    """Start a command in a new interpreter."""
    # The test itself has its files captured.
    output = abandoned if redirection == "PIPE" else subprocess.DEVNULL
    return subprocess.Popen(
        ["sh", "-c", f"exec {command} {redirection.removeprefix('PIPE')}"],
        cwd=ROOT,
        env=environment(**settings),
        stdout=output,
        stderr=output,
        start_new_session=True,
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def until_ready(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + PATIENCE_S
    while True:
        assert process.poll() is None
        assert time.monotonic() < until
        try:
            with client_of(f"http://127.0.0.1:{port}") as client:
                assert client.get("/health/ready").status_code == 200
        except httpx.ConnectError:
            time.sleep(0.1)
        else:
            return


def processes(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(int(child) for child in children)]


@pytest.mark.parametrize("redirection", [ALL_CLOSED, "PIPE", ">/dev/full 2>/dev/full"])
def test_an_invalid_setting_has_its_status(abandoned: int, redirection: str):
    process = launched(APP, redirection, abandoned, PORT="none")
    assert process.wait(PATIENCE_S) == 2


# Each is a new interpreter. The command `serve` opens the files where the module does, whatever they are.
USUAL, SLOW = [(APP, ALL_CLOSED, "1")], [(SERVE, ALL_CLOSED, "2")]
CASES = [
    pytest.param(*case, marks=() if case in USUAL else pytest.mark.slow if case in SLOW else pytest.mark.thorough)
    for case in product((APP, SERVE), REDIRECTIONS, "12")
]


@pytest.mark.parametrize(("command", "redirection", "workers"), CASES)
def test_the_service_serves_and_ends(abandoned: int, command: str, redirection: str, workers: str):
    port = free_port()
    process = launched(command, redirection, abandoned, PORT=str(port), WORKERS=workers)
    try:
        until_ready(process, port)
        # Each request writes a line.
        for _ in range(3):
            assert httpx.get(f"http://127.0.0.1:{port}/v1/ops", trust_env=False).status_code == 200
        for pid in processes(process.pid):
            for number in (0, 1, 2):
                target = os.readlink(f"/proc/{pid}/fd/{number}")
                assert target.startswith(("/dev/", "pipe:")), (pid, number, target)
                is_closed = number in (1, 2) and redirection == ALL_CLOSED
                assert not is_closed or target == os.devnull
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    finally:
        process.kill()
        process.wait(PATIENCE_S)
