"""Load from a separate process, ``load.cc``, and the CPU time that it costs the server.

The rate depends on what else the machine does; the server's CPU time a request hardly does.
"""

import http.client
import json
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.candidates import Request
from benchmarks.processes import BUILD, HOST, ROOT, Server, environment

SOURCE = Path(__file__).with_suffix(".cc")
COMPILER = "g++"
# Extra time for a load, for the requests in flight at its end.
GRACE_S = 90
ANSWER_S = 60.0


@dataclass(frozen=True)
class Sample:
    """The result of a load: the number of answered requests, the duration in seconds, and the latencies in seconds.

    ``refused`` responses had a status of 400 or more; ``failed`` ones did not arrive. ``cpu`` is the CPU time of the
    server in seconds, of all its threads and child processes.
    """

    requests: int
    seconds: float
    p50: float
    p99: float
    longest: float
    cpu: float
    refused: int = 0
    failed: int = 0

    @property
    def rate(self) -> float:
        """Successful responses per second."""
        return (self.requests - self.refused) / self.seconds

    @property
    def cpu_us(self) -> float:
        """The server's CPU time per request, in microseconds."""
        return 1e6 * self.cpu / max(self.requests, 1)


class Posted:
    """Requests in a file that the loads read; removed at the end of the context."""

    def __init__(self, requests: Iterable[Request]) -> None:
        """Write the requests."""
        self._folder = tempfile.TemporaryDirectory(prefix="pullback-bench-")
        self._file = Path(self._folder.name, "requests")
        with self._file.open("wb") as file:
            file.writelines(framed(map(whole, requests)))

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the file."""
        self._folder.cleanup()

    def load(self, server: Server, connections: int, seconds: float, count: int = sys.maxsize) -> Sample:
        """Post the requests in turn for ``seconds``, ``count`` at most, but at least one on every connection.

        Raises ``RuntimeError`` if the load fails, and ``subprocess.TimeoutExpired`` if it does not end.
        """
        command = [str(program()), str(server.port), str(self._file), str(connections), str(seconds), str(count)]
        before = server.cpu_s()
        done = subprocess.run(
            command, env=environment(), capture_output=True, text=True, timeout=seconds + GRACE_S, check=False
        )
        cpu = server.cpu_since(before)
        if done.returncode:
            raise RuntimeError(f"the load exited with {done.returncode}: {done.stderr.strip()[-300:]}")
        return Sample(**json.loads(done.stdout), cpu=cpu)


def program() -> Path:
    """Return the compiled load; compile it if it is missing or older than its source."""
    compiled = BUILD / SOURCE.stem
    if not compiled.exists() or compiled.stat().st_mtime < SOURCE.stat().st_mtime:
        if shutil.which(COMPILER) is None:
            raise SystemExit(f"Expected {COMPILER}, which compiles {SOURCE.relative_to(ROOT)}.")
        BUILD.mkdir(parents=True, exist_ok=True)
        subprocess.run([COMPILER, "-std=c++17", "-O2", "-Wall", "-o", str(compiled), str(SOURCE)], check=True)
    return compiled


def post(port: int, request: Request) -> tuple[int, bytes]:
    """Return the status and the body of the response to one request, whose bytes are those that a load sends."""
    with socket.create_connection((HOST, port), timeout=ANSWER_S) as connection:
        connection.sendall(whole(request))
        with http.client.HTTPResponse(connection, method="POST") as answer:
            answer.begin()
            return answer.status, answer.read()


def whole(request: Request) -> bytes:
    """Return the bytes of a request on the wire."""
    headers = {"Host": HOST, **request.headers, "Content-Length": str(len(request.body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST {request.path} HTTP/1.1\r\n{head}\r\n".encode() + request.body


def framed(messages: Iterable[bytes]) -> Iterator[bytes]:
    """Yield each message after its length in 8 bytes."""
    for message in messages:
        yield len(message).to_bytes(8, "little")
        yield message
