"""Pullback by itself: the memory left by many shapes, the cost of a number, and its health under load."""

import http.client
import json
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import starmap
from typing import NamedTuple

import numpy as np

from benchmarks.candidates import Request, draws, numbers, pullback_base64, pullback_json, pullback_safetensors
from benchmarks.cells import LARGE
from benchmarks.load import Posted, Sample
from benchmarks.processes import HOST, Server

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
AXIS, RANKS = 16, 3
CONNECTIONS = 8
PAUSE_S = 0.01


class Shapes(NamedTuple):
    """Requests of many shapes: the number of both, and the traces and memory (MB) they left in the process."""

    requests: int
    shapes: int
    grown_mb: float
    rss_mb: float
    traces: tuple[int, int]
    compiled: tuple[int, int]


class Health(NamedTuple):
    """Latencies of GET /health/live under a load, in seconds."""

    load: str
    probes: int
    p99: float
    longest: float


@dataclass
class Alone:
    """All results; ``costs`` are seconds per number by size, and ``nots`` the failed measurements."""

    shapes: Shapes | None = None
    costs: dict[int, float] = field(default_factory=dict[int, float])
    health: list[Health] = field(default_factory=list[Health])
    nots: list[str] = field(default_factory=list[str])


def measure(*, quick: bool) -> Alone:
    """Measure a fresh server."""
    found = Alone()
    with Server("pullback") as server:
        parts: dict[str, Callable[[], None]] = {
            "many shapes": partial(many_shapes, server, found, *((2_000, 200) if quick else (20_000, 2_000))),
            "the cost of a number": partial(costs, server, found, 1.0 if quick else 3.0),
            "/health/live under load": partial(healths, server, found, 2 if quick else 5),
        }
        for title, part in parts.items():
            print(f"Pullback alone: {title}", flush=True)
            try:
                part()
            except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
                # Keep the results so far.
                found.nots.append(f"{title}: {str(error)[:200]}")
    return found


def many_shapes(server: Server, found: Alone, requests: int, shapes: int) -> None:
    """Post ``requests`` of ``shapes`` random shapes, after a warm-up with a tenth of both, of other shapes."""
    rng = np.random.default_rng(1)
    drawn: dict[tuple[int, ...], None] = {}
    while len(drawn) < shapes + shapes // 10:
        drawn[tuple(map(int, rng.integers(1, AXIS + 1, rng.integers(1, RANKS + 1))))] = None
    warm_up, others = list(drawn)[: shapes // 10], list(drawn)[shapes // 10 :]
    _post_shapes(server, warm_up, requests // 10)
    before, traces, compiled = server.rss_mb(), *_traces(server)
    _post_shapes(server, others, requests)
    after, *now = server.rss_mb(), *_traces(server)
    found.shapes = Shapes(requests, shapes, after - before, after, (traces, now[0]), (compiled, now[1]))


def _post_shapes(server: Server, shapes: list[tuple[int, ...]], requests: int) -> None:
    with Posted(map(_shaped, shapes)) as posted:
        sample = posted.load(server, CONNECTIONS, seconds=120, count=requests)
    if sample.requests < requests or sample.refused or sample.failed:
        raise RuntimeError(f"expected {requests} answers to requests of many shapes, got {sample}")


def _shaped(shape: tuple[int, ...]) -> Request:
    x, dy = numbers(int(np.prod(shape)))
    return pullback_json(x.reshape(shape), dy.reshape(shape))


def _traces(server: Server) -> tuple[int, int]:
    ready = json.loads(server.get("/health/ready")[1])
    return ready["traces"], ready["compiled"]


def costs(server: Server, found: Alone, seconds: float) -> None:
    """Return the seconds per number at every size, one request at a time, as safetensors."""
    for n in SIZES:
        with Posted(starmap(pullback_safetensors, draws(n))) as posted:
            first = posted.load(server, 1, 0, count=1)
            if first.refused or first.failed:
                found.nots.append("the cost of a number: safetensors were refused")
                return
            found.costs[n] = posted.load(server, 1, seconds).p50 / n


def healths(server: Server, found: Alone, seconds: int) -> None:
    """Measure /health/live under each load."""
    loads = (
        ("n = 10 as JSON, c = 64", 10, 64, pullback_json),
        ("n = 1,000,000 as JSON, c = 4", LARGE, 4, pullback_json),
        ("n = 1,000,000 in base64, c = 4", LARGE, 4, pullback_base64),
        ("n = 1,000,000 as safetensors, c = 4", LARGE, 4, pullback_safetensors),
    )
    for title, n, connections, request in loads:
        with Posted(starmap(request, draws(n))) as posted:
            if (first := posted.load(server, 1, 0, count=1)).refused or first.failed:
                found.nots.append(f"/health/live under {title}: the load was refused")
                continue
            found.health.append(_probed(server, title, partial(posted.load, server, connections, seconds)))


def _probed(server: Server, title: str, load: Callable[[], Sample]) -> Health:
    """Request the health repeatedly while the load runs."""
    thread = threading.Thread(target=load)
    connection = http.client.HTTPConnection(HOST, server.port, timeout=60)
    times = list[float]()
    thread.start()
    while thread.is_alive():
        began = time.perf_counter()
        connection.request("GET", "/health/live")
        connection.getresponse().read()
        times.append(time.perf_counter() - began)
        time.sleep(PAUSE_S)
    connection.close()
    times.sort()
    return Health(title, len(times), times[len(times) * 99 // 100], times[-1])
