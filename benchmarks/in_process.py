"""Calls in a process without HTTP, which can be loaded like a server: both ends."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Self

from benchmarks.load import Sample
from benchmarks.processes import ROOT, environment


class InProcess:
    """The process of a module that answers lines with ``answer_lines``; as a context manager it stops at the end."""

    def __init__(self, module: str) -> None:
        """Start it."""
        self._module = module
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=ROOT,
            env={**environment(), "TF_CPP_MIN_LOG_LEVEL": "2"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Stop: its input ends."""
        self._process.communicate(timeout=30)

    def sample(self, what: object, seconds: float) -> Sample:
        """Let it call ``what`` for this long; raise ``RuntimeError`` if it ends instead."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(what, seconds, file=self._process.stdin, flush=True)
        if not (line := self._process.stdout.readline()):
            raise RuntimeError(f"{self._module} ended")
        return Sample(**json.loads(line))


def answer_lines(prepared: Callable[[str], Callable[[int], Any]]) -> None:
    """Read lines of "WHAT SECONDS", and answer each with the fields of ``Sample`` in JSON.

    ``prepared(what)`` returns the function to call; it takes the number of the call.
    """
    for line in sys.stdin:
        what, seconds = line.split()
        print(json.dumps(_timed(prepared(what), float(seconds))), flush=True)


def _timed(call: Callable[[int], Any], seconds: float) -> dict[str, float]:
    times = list[float]()
    start, cpu = time.perf_counter(), time.process_time()
    while not times or time.perf_counter() - start < seconds:
        began = time.perf_counter()
        call(len(times))
        times.append(time.perf_counter() - began)
    taken, cpu = time.perf_counter() - start, time.process_time() - cpu
    times.sort()
    return {
        "requests": len(times),
        "seconds": taken,
        "p50": times[len(times) // 2],
        "p99": times[len(times) * 99 // 100],
        "longest": times[-1],
        "cpu": cpu,
    }
