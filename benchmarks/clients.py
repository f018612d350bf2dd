"""Third-party clients with Pullback and with their own server, in turn: ``python -m benchmarks.clients [CLIENT...]``.

Each client runs the same mix of calls (``mixes/``) from the environment that ``make test-clients`` makes for it,
against y = log1p(e^x): in Pullback an op with its derivatives in TensorFlow, in the other server a NumPy model as in
its documentation. Every round runs both, one after the other; the result is the median of the rounds' ratios.
"""

import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.processes import HOST, ROOT, Server, Unavailable, environment

CLIENTS = ROOT / "build" / "clients"
MIXES = ROOT / "benchmarks" / "mixes"
ROUNDS, CALLS_S, LIMIT_S = 7, 3.0, 120


class Mix(NamedTuple):
    """A client's mix of calls: its own server, and the equivalent path of Pullback."""

    stock: str
    path: str = ""


MIXED = {
    "umbridge": Mix("umbridge_stock"),
    "tesseract": Mix("tesseract_stock", "/tesseract/log1pexp"),
    "triton": Mix("triton_stock"),
}


def seconds_a_call(client: str, url: str, rounds: int) -> float:
    """Return the average seconds per call of the mix."""
    command = [str(CLIENTS / client / "bin" / "python"), "-P", str(MIXES / f"{client}.py"), url, str(rounds)]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=LIMIT_S, cwd=MIXES, check=False
    )
    if done.returncode:
        raise Unavailable(f"the client failed: {done.stderr.strip().splitlines()[-1]}")
    seconds, calls = done.stdout.split()
    return float(seconds) / int(calls)


def compare(client: str, ours: Server) -> str:
    """Return a row of the table: milliseconds per call of both servers, and our speedup."""
    mix, times = MIXED[client], list[tuple[float, float]]()
    here = f"http://{HOST}:{ours.port}{mix.path}"
    with Server(mix.stock) as stock:
        there = f"http://{HOST}:{stock.port}"
        # A round of the mix is about twenty calls.
        rounds = max(1, int(CALLS_S / (20 * seconds_a_call(client, there, 2))))
        for _ in range(ROUNDS):
            times.append((seconds_a_call(client, here, rounds), seconds_a_call(client, there, rounds)))
    ratios = [there / here for here, there in times]
    medians = [statistics.median(column) * 1e3 for column in zip(*times, strict=True)]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return f"| {client} | {medians[0]:.2f} | {medians[1]:.2f} | {statistics.median(ratios):.2f} ({spread}) |"


def main(clients: Sequence[str]) -> None:
    """Print the table."""
    print("| client | ms a call: Pullback | its own server, NumPy | times as fast |\n| --- | --- | --- | --- |")
    with Server("pullback") as ours:
        for client in clients or MIXED:
            try:
                print(compare(client, ours), flush=True)
            except Unavailable as why:
                print(f"| {client} | - | - | {why} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
