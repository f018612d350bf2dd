"""Measure the evals of GradBench: ``python -m benchmarks.gradbench.measure URL FILE``.

The tool answers the messages of each eval at some of its sizes, by a service at the URL. Beside it, TensorFlow computes
the same in this process, from arrays to lists, as the tool does. Both run in turn, and the least time of each counts,
because other programs on the machine only add to it.
"""

import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from benchmarks.commit import described
from benchmarks.gradbench.evals import EVALS, MIXTURE, Call, Numbers, det_input, gmm_input, llsq_input, lse_input
from benchmarks.gradbench.protocol import responses, runs
from pullback import Client
from pullback.ops import load_page

PAGES = Path(__file__).with_name("pages")
ROUNDS, RUNS = 5, 4
SEED, DEGREE, POINTS = 31337, 128, 1000
Read = Callable[[Any], tuple[dict[str, Numbers], dict[str, Any]]]


class Case(NamedTuple):
    """An eval at a size: its input, how that is read, and with respect to what the gradient is."""

    module: str
    size: str
    given: dict[str, Any]
    read: Read
    wrt: tuple[str, ...]


def cases() -> Iterator[Case]:
    """Yield the cases, with inputs that are drawn as the evals draw theirs."""
    rng = np.random.default_rng(SEED)
    for n in (16, 1024, 16384):
        yield Case("llsq", f"n = {n}", {"x": rng.random(DEGREE).tolist(), "n": n}, llsq_input, ("x",))
    for n in (1000, 100_000):
        yield Case("lse", f"n = {n}", {"x": rng.random(n).tolist()}, lse_input, ("x",))
    for ell in (5, 8, 11):
        yield Case("det", f"l = {ell}", {"A": rng.random(ell * ell).tolist(), "ell": ell}, det_input, ("a",))
    for d, k in ((2, 5), (10, 25), (32, 50)):
        yield Case("gmm", f"d = {d}, k = {k}", mixture(rng, d, k), gmm_input, tuple(MIXTURE.values()))


def mixture(rng: np.random.Generator, d: int, k: int) -> dict[str, Any]:
    """Return an input of ``gmm``."""
    normal = {"alpha": (k,), "q": (k, d), "l": (k, d * (d - 1) // 2), "x": (POINTS, d)}
    drawn = {name: rng.normal(size=shape).tolist() for name, shape in normal.items()}
    return drawn | {"mu": rng.random((k, d)).tolist(), "d": d, "k": k, "n": POINTS, "m": 0, "gamma": 1.0}


def bare(case: Case, function: Callable[..., Any]) -> Mapping[str, Call]:
    """Return the calls of TensorFlow for the value and the gradient."""
    inputs, given_attrs = case.read(case.given)
    attrs = {name: tf.constant(x, "float64") if isinstance(x, float) else x for name, x in given_attrs.items()}
    value = tf.function(lambda given: function(**given, **attrs))

    @tf.function
    def gradient(given: Mapping[str, Any]) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([given[name] for name in case.wrt])
            y = function(**given, **attrs)
        return tape.gradient(y, [given[name] for name in case.wrt])

    def tensors() -> dict[str, Any]:
        return {name: tf.constant(array) for name, array in inputs.items()}

    return {
        "value": lambda: float(value(tensors())),
        "gradient": lambda: [part.numpy().tolist() for part in gradient(tensors())],
    }


def row(case: Case, client: Client) -> str:
    """Measure a case; return its row of the table. Raises ``ValueError`` if the two do not agree."""
    found = EVALS[case.module]
    page = load_page(PAGES / f"{found.op}.py")
    cells = [case.module, case.size]
    for (kind, call), function in zip(bare(case, page.function).items(), found.functions, strict=True):
        ours, theirs = [], []
        for _ in range(ROUNDS):
            answer = asked(client, case, function)
            expected, timings = runs(call, RUNS, 0)
            if not np.allclose(flat(answer["output"]), flat(expected), rtol=1e-9, atol=1e-9):
                raise ValueError(f"expected the {kind} of {case.module} at {case.size} to be that of TensorFlow")
            ours += [timing["nanoseconds"] for timing in answer["timings"]]
            theirs += timings
        cells += [f"{min(ours) / 1e6:.3g} ms", f"{min(theirs) / 1e6:.3g} ms"]
    return f"| {' | '.join(cells)} |"


def asked(client: Client, case: Case, function: str) -> Any:
    """Return the tool's response to a message. Raises ``ValueError`` for a failure."""
    given = case.given | {"min_runs": RUNS, "min_seconds": 0}
    message = {"id": 0, "kind": "evaluate", "module": case.module, "function": function, "input": given}
    [line] = responses(io.BytesIO(json.dumps(message).encode()), client)
    response = json.loads(line)
    if not response["success"]:
        raise ValueError(response["error"])
    return response


def flat(output: Any) -> Numbers:
    """Return all numbers of an output."""
    if isinstance(output, dict):
        output = list(output.values())
    parts = [flat(part) for part in output] if isinstance(output, list) else [np.array([output], np.float64)]
    return np.concatenate([np.zeros(0), *parts])


def main(url: str, file: Path) -> None:
    """Measure, and write the table."""
    lines = [
        "# GradBench through the service\n",
        f"At commit {described()}. `python -m benchmarks.gradbench.measure` writes this page;",
        "the [benchmarks](../README.md) say which evals there are, and how to run GradBench itself.\n",
        "Each eval is asked by its messages, and the service answers on loopback. Beside it stands TensorFlow in the",
        "process of the caller, traced by `tf.function`, with the same code of the value and the same derivative.",
        "The difference is the price of HTTP, the conversion to bytes, and the service.",
        f"Least of {ROUNDS * RUNS} calls, on a shared machine; `hello` and `kmeans` are not measured.\n",
        "| eval | size | value, service | value, TensorFlow | gradient, service | gradient, TensorFlow |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    with Client(url) as client:
        lines += [row(case, client) for case in cases()]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
