"""No server: the same gradient, called in a separate process, from NumPy to NumPy with the copies both ways.

``python -m benchmarks.servers.in_process`` reads lines of "N SECONDS", and answers each with its result in JSON.
"""

import json
import sys
import time
from typing import Any

from app.autodiff.binding import bind
from app.autodiff.derivatives import vjp
from app.runtime.devices import devices
from benchmarks.candidates import draws, is_gradient
from ops.log1pexp import OP


def given(value: Any, dtype: str, loc: object) -> Any:
    """Return an array unchanged: no format is written, so none is read."""
    del dtype, loc
    return value


def measure(n: int, seconds: float) -> dict[str, float]:
    """Return the fields of `load.Sample`, for sequential calls."""
    inputs = list(draws(n))
    points = [
        bind(OP, {"x": x}, {}, "float32", given, mode="xla", device=devices()["cpu"], max_elements=n) for x, _ in inputs
    ]

    def call(at: int) -> Any:
        return vjp(points[at], ("x",), {"y": inputs[at][1]}, batched=False, outputs=False).run()[1]["x"]

    assert is_gradient(call(0), *inputs[0])
    times = list[float]()
    start, cpu = time.perf_counter(), time.process_time()
    while not times or time.perf_counter() - start < seconds:
        began = time.perf_counter()
        call(len(times) % len(inputs))
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


def main() -> None:
    """Answer one line after the other."""
    for line in sys.stdin:
        n, seconds = line.split()
        print(json.dumps(measure(int(n), float(seconds))), flush=True)


if __name__ == "__main__":
    main()
