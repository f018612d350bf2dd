"""Graphs beside what they replace: ``python -m benchmarks.graphs`` writes ``results/graphs.md``, in a minute.

One client, on one connection, asks for the value, the gradient and a Hessian-vector product of log(1 + exp |a x|): of a
posted graph, of the same composition as one page, and of three ops that it chains itself. Then it asks for the gradient
of a graph of 100 nodes, of the same as one page, and calls the ``tf.function`` of that composition in its own process.

Each round takes all candidates in turn, with other numbers in each call, so that a busy machine slows all of them
alike. A ratio is the median of the rounds' ratios. CPU time of the service is that of all its threads; that of a
``tf.function`` is of all threads of this process.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from benchmarks.commit import described
from benchmarks.graph_pages import chain_page
from benchmarks.pages import table
from benchmarks.processes import Server
from ops import Array
from pullback import Client
from pullback.graph_values import Value

RESULT = Path(__file__).parent / "results" / "graphs.md"
ROUNDS, CALLS, WARM_UP_S = 15, 20, 3.0
SIDE = 16
SIZES = (10, 1_000, 10_000)
LOCAL = "`tf.function`"

Call = Callable[[int], Any]


class Times(NamedTuple):
    """Seconds of a call: on the clock, and of CPU."""

    wall: float
    cpu: float


def main() -> None:
    """Measure both compositions, and write the page."""
    with Server("pullback_graphs") as server, Client(f"http://127.0.0.1:{server.port}") as client:
        tables = [loss_table(server, client), *(chain_table(server, client, n) for n in SIZES)]
    head = (__doc__ or "").split("\n\n", 1)[1].replace("``", "`").strip()
    RESULT.write_text("\n\n".join(["# Graphs of ops", head, *tables, f"Commit {described()}."]) + "\n")
    print(RESULT.read_text())


def loss_table(server: Server, client: Client) -> str:
    """Return the table of log(1 + exp |a x|)."""
    log1pexp, safe_norm, matvec = map(client.op, ("log1pexp", "safe_norm", "matvec"))

    def loss(a: Value, x: Value) -> Value:
        return log1pexp(safe_norm(matvec(a, x)))

    graph, page = client.compose(loss), client.op("loss_page")
    rng = np.random.default_rng(0)
    points = [{"a": random(rng, SIDE, SIDE), "x": random(rng, SIDE)} for _ in range(CALLS)]
    v = random(rng, SIDE)

    def asked(op: Any) -> Call:
        def call(i: int) -> list[Array]:
            found = op.vjp(points[i], wrt=["x"], outputs=True)
            product = op.hvp(points[i], vectors={"x": v}, wrt=["x"])
            return [found.outputs["y"], found.gradients["x"], product.products["x"]]

        return call

    def chained(i: int) -> list[Array]:
        a, x = points[i]["a"], points[i]["x"]
        z = matvec.forward({"a": a, "x": x}).outputs["y"]
        r = safe_norm.forward({"x": z}).outputs["y"]
        outer = log1pexp.vjp({"x": r}, outputs=True)
        dr = outer.gradients["x"]
        dz = safe_norm.vjp({"x": z}, cotangents={"y": dr}).gradients["x"]
        dx = matvec.vjp({"a": a, "x": x}, cotangents={"y": dz}, wrt=["x"]).gradients["x"]
        # The second order: tangents forward, then the derivatives of the vjps, backward.
        tz = matvec.jvp({"a": a, "x": x}, tangents={"x": v}).tangents["y"]
        tr = safe_norm.jvp({"x": z}, tangents={"x": tz}).tangents["y"]
        hr = log1pexp.hvp({"x": r}, vectors={"x": tr}).products["x"]
        hz = safe_norm.hvp({"x": z}, cotangents={"y": dr}, vectors={"x": tz}).products["x"]
        hz = hz + safe_norm.vjp({"x": z}, cotangents={"y": hr}).gradients["x"]
        hx = matvec.vjp({"a": a, "x": x}, cotangents={"y": hz}, wrt=["x"]).gradients["x"]
        return [outer.outputs["y"], dx, hx]

    calls = {
        "graph": (2, asked(graph)),
        "one page": (2, asked(page)),
        "three ops, chained by the client": (11, chained),
    }
    title = f"## log(1 + exp |a x|), a of [{SIDE}, {SIDE}]: value, gradient and Hessian-vector product"
    return f"{title}\n\n{compared(server, calls)}"


def chain_table(server: Server, client: Client, n: int) -> str:
    """Return the table of the graph of 100 nodes, at n numbers."""
    log1pexp, total = client.op("log1pexp"), client.op("sum")

    def chain(x: Any) -> Any:
        y = x
        for _ in range(chain_page.STEPS):
            y = log1pexp(y) * 0.5 - x
        return total(y)

    rng = np.random.default_rng(n)
    points = [random(rng, n) for _ in range(CALLS)]
    start = time.perf_counter()
    graph, page = client.compose(chain), client.op("chain_page")
    graph.vjp({"x": points[0]})
    first = time.perf_counter() - start

    @tf.function(input_signature=[tf.TensorSpec([n], tf.float32)], autograph=False)
    def gradient(x: tf.Tensor) -> Any:
        return tf.gradients(chain_page.forward(x), x)[0]

    calls: dict[str, tuple[int, Call]] = {
        "graph": (1, lambda i: [graph.vjp({"x": points[i]}).gradients["x"]]),
        "one page": (1, lambda i: [page.vjp({"x": points[i]}).gradients["x"]]),
        LOCAL: (0, lambda i: [gradient(tf.constant(points[i])).numpy()]),
    }
    title = f"## A graph of {3 * chain_page.STEPS + 1} nodes: the gradient, at {n:,} numbers"
    return f"{title}\n\nThe first answer took {first:.2f} s, with the POST.\n\n{compared(server, calls)}"


def compared(server: Server, calls: Mapping[str, tuple[int, Call]]) -> str:
    """Return a table of the candidates, each with its number of requests; the first is compared with the others."""
    first, *others = calls
    for name in others:
        for ours, theirs in zip(calls[first][1](0), calls[name][1](0), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=1e-5)
    for _, call in calls.values():
        end = time.perf_counter() + WARM_UP_S
        while time.perf_counter() < end:
            call(1)
    rounds = [{name: timed(server, call, name == LOCAL) for name, (_, call) in calls.items()} for _ in range(ROUNDS)]
    rows: list[list[str]] = []
    for name, (requests, _) in calls.items():
        wall, cpu = ([getattr(times[name], of) for times in rounds] for of in Times._fields)
        ratios = [
            f"{statistics.median(getattr(times[first], of) / getattr(times[name], of) for times in rounds):.2f}"
            for of in Times._fields
        ]
        own = [f"{1e6 * statistics.median(each):,.0f} µs" for each in (wall, cpu)]
        rows.append([name, str(requests), *own, *(ratios if name != first else ["", ""])])
    return table(["candidate", "requests", "time", "CPU", "graph / candidate: time", "CPU"], rows)


def timed(server: Server, call: Call, is_local: bool) -> Times:
    """Return the seconds of a call, of several."""
    before, own, start = server.cpu_s(), time.process_time(), time.perf_counter()
    for i in range(CALLS):
        call(i)
    wall = time.perf_counter() - start
    cpu = time.process_time() - own if is_local else server.cpu_since(before)
    return Times(wall / CALLS, cpu / CALLS)


def random(rng: np.random.Generator, *shape: int) -> Array:
    """Return normal numbers in float32."""
    return rng.normal(size=shape).astype(np.float32)


if __name__ == "__main__":
    main()
