"""Load from a separate process: wrk for many small requests, ``sockets.py`` for few large ones.

wrk counts the requests that end within its time, which cannot measure a request that takes as long. It reads 8 KiB at
a time, so large responses keep it as busy as the server.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.candidates import Request
from benchmarks.processes import HOST, ROOT, environment

SCRIPT = Path(__file__).with_name("load.lua")
# Extra time for a load, for the requests in flight at its end.
GRACE_S = 90


@dataclass(frozen=True)
class Sample:
    """The result of a load: the number of answered requests, the duration in seconds, and the latencies in seconds.

    ``refused`` responses had a status outside 200 to 399; ``failed`` ones did not arrive.
    """

    requests: int
    seconds: float
    p50: float
    p99: float
    longest: float
    refused: int = 0
    failed: int = 0

    @property
    def rate(self) -> float:
        """Successful responses per second."""
        return (self.requests - self.refused) / self.seconds


def wrk_version() -> str | None:
    """Return wrk's version, ``None`` without wrk."""
    if shutil.which("wrk") is None:
        return None
    # It prints its version and its usage, and exits with 1.
    words = subprocess.run(["wrk", "-v"], capture_output=True, text=True, check=False).stdout.split()
    return f"{words[0]} {words[1]}"


class Posted:
    """Requests in files that the loads read; removed at the end of the context."""

    def __init__(self, *requests: Request) -> None:
        """Take the requests; wrk uses only the first."""
        self._requests = requests
        self._folder = tempfile.TemporaryDirectory(prefix="pullback-bench-")
        self._body, self._raw = Path(self._folder.name, "body"), Path(self._folder.name, "raw")
        self._body.write_bytes(requests[0].body)
        with self._raw.open("wb") as file:
            file.writelines(framed(map(whole, requests)))

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the files."""
        self._folder.cleanup()

    def by_wrk(self, port: int, connections: int, seconds: int) -> Sample:
        """Post the first request for ``seconds``, on one thread of wrk."""
        path, headers, _ = self._requests[0]
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout=30s", "-s", str(SCRIPT)]
        lines = [f"{name}: {value}" for name, value in headers.items()]
        return _sample([*command, f"http://{HOST}:{port}{path}", "--", str(self._body), *lines], seconds)

    def by_sockets(self, port: int, connections: int, seconds: float, count: int = sys.maxsize) -> Sample:
        """Post the requests in turn for ``seconds``, ``count`` at most, but at least one on every connection."""
        command = [sys.executable, "-m", "benchmarks.sockets", str(port), str(self._raw)]
        return _sample([*command, str(connections), str(seconds), str(count)], seconds)


def whole(request: Request) -> bytes:
    """Return the bytes of a request on the wire."""
    headers = {"Host": HOST, **request.headers, "Content-Length": str(len(request.body))}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST {request.path} HTTP/1.1\r\n{head}\r\n".encode() + request.body


def framed(messages: Iterable[bytes]) -> Iterable[bytes]:
    """Yield each message after its length in 8 bytes."""
    for message in messages:
        yield len(message).to_bytes(8, "little")
        yield message


def _sample(command: list[str], seconds: float) -> Sample:
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=seconds + GRACE_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{command[0]} exited with {done.returncode}: {done.stderr.strip()[-300:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return Sample(**found)
