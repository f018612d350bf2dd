"""The fast path: its Python calls per request, and Pullback's CPU time with and without it.

Every round loads a server with the fast path and one without it, in turn. Requests that the fast path cannot take
must not pay for it.
"""

import itertools
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import orjson

from benchmarks.candidates import MOST_DRAWS, Request, draws, numbers, pullback_json
from benchmarks.load import Posted, Sample
from benchmarks.processes import Server

N, CONNECTIONS = 10, 16
ROWS = 4
SOFTMAX = "/v1/ops/softmax_cross_entropy/vjp"
# No load answers more: with a repeated id, a request would be an earlier one.
MOST_REQUESTS = 30_000
COUNTED_S, WRITTEN_S = 2.0, 10.0


class Load(NamedTuple):
    """Requests in words, the function that makes them anew for each window, and whether the fast path takes them."""

    title: str
    requests: Callable[[], Iterator[Request]]
    is_express: bool


class Pair(NamedTuple):
    """The CPU time per request in microseconds, with the fast path and without it, in each round."""

    load: Load
    on: list[float]
    off: list[float]


@dataclass
class Express:
    """All results; ``calls`` is the number of Python calls per request, and ``nots`` are the failed measurements."""

    calls: float | None = None
    pairs: list[Pair] = field(default_factory=list[Pair])
    nots: list[str] = field(default_factory=list[str])


def repeated() -> Iterator[Request]:
    """Yield requests that differ only in their numbers."""
    return itertools.starmap(pullback_json, draws(N))


def with_ids() -> Iterator[Request]:
    """Yield the same requests, each with another request id."""
    start = time.time_ns()
    for i, request in enumerate(itertools.islice(itertools.cycle(repeated()), MOST_REQUESTS)):
        yield request._replace(headers={**request.headers, "X-Request-Id": f"{start + i:x}"})


def softmax() -> Iterator[Request]:
    """Yield requests for an op that is not elementwise."""
    for draw in range(MOST_DRAWS):
        x, dy = numbers(ROWS * N, draw)
        labels = np.random.default_rng(draw).integers(0, N, ROWS)
        document = {"inputs": {"logits": x.reshape(ROWS, N), "labels": labels}, "cotangents": {"loss": dy[:ROWS]}}
        yield Request(
            SOFTMAX, {"Content-Type": "application/json"}, orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
        )


LOADS = (
    Load("log1pexp, n = 10, prefixes alike", repeated, True),
    Load("log1pexp, n = 10, every request with another id", with_ids, False),
    Load(f"softmax_cross_entropy, {ROWS} rows of 10", softmax, False),
)


def measure(*, quick: bool) -> Express:
    """Measure fresh servers."""
    found = Express()
    # Many short rounds: the ratio to show is close to 1.
    seconds, rounds = (0.5, 5) if quick else (0.5, 20)
    try:
        print("The fast path: Python calls", flush=True)
        found.calls = calls()
        with ExitStack() as stack:
            on, off = (stack.enter_context(Server(name)) for name in ("pullback", "pullback_ordinary"))
            for load in LOADS:
                print(f"The fast path: {load.title}", flush=True)
                found.pairs.append(compare(load, on, off, seconds, rounds))
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        # Keep the results so far.
        found.nots.append(str(error)[:200])
    return found


def calls() -> float:
    """Return the number of Python functions that a request calls."""
    with Server("pullback_counted") as server, Posted(repeated()) as posted:
        written = server.scratch / "calls"
        answered(posted.load(server, CONNECTIONS, COUNTED_S))
        server.send_signal(signal.SIGUSR1)
        sample = answered(posted.load(server, CONNECTIONS, COUNTED_S))
        server.send_signal(signal.SIGUSR2)
        end = time.monotonic() + WRITTEN_S
        while not (written.exists() and written.read_text().endswith("\n")):
            if time.monotonic() > end:
                raise RuntimeError("expected the number of calls, got none")
            time.sleep(0.05)
        return int(written.read_text()) / sample.requests


def compare(load: Load, on: Server, off: Server, seconds: float, rounds: int) -> Pair:
    """Load both servers in turn, after a warm-up."""
    pair = Pair(load, [], [])
    for i in range(rounds + 1):
        with Posted(load.requests()) as posted:
            for server, into in ((on, pair.on), (off, pair.off)):
                sample = answered(posted.load(server, CONNECTIONS, seconds, MOST_REQUESTS))
                if i:
                    into.append(sample.cpu_us)
    return pair


def answered(sample: Sample) -> Sample:
    """Return the sample; raise ``RuntimeError`` if a request failed."""
    if sample.refused or sample.failed:
        raise RuntimeError(f"{sample.refused + sample.failed} of {sample.requests + sample.failed} requests failed")
    return sample
