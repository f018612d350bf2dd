"""Measure what the simulation is calibrated with: ``python -m benchmarks.scaling.measure FILE``.

One process answers small requests, 1 to 64 at a time. Three processes behind HAProxy answer requests that sleep: they
take no CPU time, so that three pods fit on two cores, and how long each takes is known.
"""

import asyncio
import json
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import numpy as np

from benchmarks.load import program
from benchmarks.processes import environment
from benchmarks.scaling.arrivals import Sizes, poisson
from tests.conftest import Service
from tests.fast_path.wire import post
from tests.fleet.load import Connection
from tests.fleet.members import SETTINGS, Fleet, plugin_ops, running

CONNECTIONS = (1, 4, 16, 64)
ROUNDS, LOAD_S = 5, 2.0
SMALL = post(
    "/v1/ops/square/vjp",
    b'{"inputs":{"x":[1.5,2.5,3.5]},"cotangents":{"y":[1.0,2.0,3.0]}}',
    "content-type: application/json",
)
SLEEPS = Sizes(least_s=4e-3, most_s=0.15, tail=1.5)
RATE, REQUESTS, ALONE = 190.0, 6000, 200
SEED = 7


def sleeping(seconds: float) -> bytes:
    """Return a request that takes so long, and no CPU time."""
    body = json.dumps({"inputs": {"x": round(seconds, 6)}}).encode()
    return post("/v1/ops/sleepy/forward", body, "content-type: application/json")


def closed_loops(port: int, folder: Path) -> list[dict[str, float]]:
    """Return what ``benchmarks/load.cc`` measures with each number of connections: the median of some rounds."""
    file = folder / "requests"
    file.write_bytes(len(SMALL).to_bytes(8, "little") + SMALL)
    found = list[dict[str, float]]()
    for connections in CONNECTIONS:
        rounds = list[dict[str, float]]()
        for _ in range(ROUNDS):
            command = [str(program()), str(port), str(file), str(connections), str(LOAD_S), str(sys.maxsize)]
            rounds.append(json.loads(_output(command)))
        rounds.sort(key=lambda one: one["p50"])
        middle = rounds[len(rounds) // 2]
        found.append({"connections": connections, "rate": middle["requests"] / middle["seconds"], **_times(middle)})
    return found


def _times(sample: dict[str, float]) -> dict[str, float]:
    return {"p50_s": sample["p50"], "p99_s": sample["p99"]}


def _output(command: Sequence[str]) -> str:
    async def run() -> str:
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=environment())
        out, _ = await asyncio.wait_for(process.communicate(), 60)
        return out.decode()

    return asyncio.run(run())


async def _one_by_one(port: int, sleeps_s: np.ndarray) -> list[float]:
    connection, found = Connection(port), list[float]()
    for seconds in sleeps_s:
        began = time.perf_counter()
        answer = await connection.ask(sleeping(seconds))
        found.append(time.perf_counter() - began)
        assert answer.status == 200, answer  # noqa: PLR2004 - a status
    connection.close()
    return found


async def _as_they_arrive(port: int, times_s: np.ndarray, sleeps_s: np.ndarray) -> list[float]:
    """Send each request at its time, whatever became of the others; return the latencies in this order."""
    idle, latencies = list[Connection](), [math.nan] * len(times_s)

    async def send(number: int) -> None:
        connection = idle.pop() if idle else Connection(port)
        began = time.perf_counter()
        answer = await connection.ask(sleeping(sleeps_s[number]))
        latencies[number] = time.perf_counter() - began
        assert answer.status == 200, answer  # noqa: PLR2004 - a status
        idle.append(connection)

    begin = time.perf_counter() + 0.1
    async with asyncio.TaskGroup() as group:
        for number, due in enumerate(times_s):
            if (wait_s := begin + due - time.perf_counter()) > 0:
                await asyncio.sleep(wait_s)
            group.create_task(send(number))
    for connection in idle:
        connection.close()
    return latencies


def computing(fleet: Fleet) -> tuple[float, float]:
    """Return how often all processes have run the op, and the seconds that it took, from their metrics."""
    totals = dict.fromkeys(("pullback_executions_total", "pullback_compute_seconds_total"), 0.0)
    for member in fleet.members.values():
        for line in httpx.get(f"http://{member.address}/metrics").text.splitlines():
            name, _, value = line.partition('{op="sleepy",operation="forward"} ')
            if name in totals:
                totals[name] += float(value)
    executions, seconds = totals.values()
    return executions, seconds


def main(file: str) -> None:
    """Measure, and write the results."""
    rng = np.random.default_rng(SEED)
    times_s, sleeps_s = poisson(RATE, REQUESTS, rng), SLEEPS.draw(REQUESTS, rng)
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryFile() as log:
        folder = Path(name)
        one = Service.forked(log, WARM_UP="1", **SETTINGS).wait_until_ready().wait_until_warm()
        try:
            loops = closed_loops(one.port, folder)
        finally:
            one.close()
        with running(plugin_ops(folder), folder) as fleet:
            # As HAProxy starts servers slowly, and the first requests trace.
            asyncio.run(_as_they_arrive(fleet.port, poisson(100, 1500, rng), SLEEPS.draw(1500, rng)))
            alone = asyncio.run(_one_by_one(fleet.port, sleeps_s[:ALONE]))
            before = computing(fleet)
            latencies = asyncio.run(_as_they_arrive(fleet.port, times_s, sleeps_s))
            calls, computed_s = (now - then for now, then in zip(computing(fleet), before, strict=True))
    inside_s = computed_s / calls - float(np.mean(sleeps_s))
    result = {
        "inside_s": inside_s,
        "loops": loops,
        "times_s": [*times_s],
        "sleeps_s": [*sleeps_s],
        "alone_s": alone,
        "latencies_s": latencies,
    }
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
