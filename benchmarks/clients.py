"""Third-party clients with Pullback and with their own server, in turn: ``python -m benchmarks.clients [CLIENT...]``.

Each client runs the same mix of calls (``mixes/``) from the environment that ``make test-clients`` makes for it,
against y = log1p(e^x): in Pullback an op with its derivatives in TensorFlow, in the other server a NumPy model as in
its documentation. Every round runs both, one after the other; the result is the median of the rounds' ratios.
"""

import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.pages import table
from benchmarks.processes import HOST, ROOT, Server, Unavailable, environment

CLIENTS = ROOT / "build" / "clients"
MIXES = ROOT / "benchmarks" / "mixes"
ROUNDS, QUICK_ROUNDS, CALLS_S, LIMIT_S = 7, 3, 3.0, 120
HEAD = ("client", "ms a call: Pullback", "its own server, NumPy", "times as fast")


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
    if not Path(command[0]).exists():
        raise Unavailable("its environment is missing; make test-clients creates it")
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=LIMIT_S, cwd=MIXES, check=False
    )
    if done.returncode:
        raise Unavailable(f"the client failed: {done.stderr.strip().splitlines()[-1]}")
    seconds, calls = done.stdout.split()
    return float(seconds) / int(calls)


class Compared(NamedTuple):
    """A client's milliseconds per call at Pullback and at its own server, medians, and the rounds' speedups."""

    client: str
    ours_ms: float
    stock_ms: float
    speedups: list[float]

    def row(self) -> tuple[str, str, str, str]:
        """The client and the figures, as text."""
        spread = f"{min(self.speedups):.2f} to {max(self.speedups):.2f}"
        middle = statistics.median(self.speedups)
        return self.client, f"{self.ours_ms:.2f}", f"{self.stock_ms:.2f}", f"{middle:.2f} ({spread})"


def compare(client: str, ours: Server, *, quick: bool) -> Compared:
    """Measure a client."""
    mix, times = MIXED[client], list[tuple[float, float]]()
    here = f"http://{HOST}:{ours.port}{mix.path}"
    with Server(mix.stock) as stock:
        there = f"http://{HOST}:{stock.port}"
        # A round of the mix is about twenty calls.
        rounds = max(1, int(CALLS_S / (20 * seconds_a_call(client, there, 2))))
        for _ in range(QUICK_ROUNDS if quick else ROUNDS):
            times.append((seconds_a_call(client, here, rounds), seconds_a_call(client, there, rounds)))
    ours_ms, stock_ms = (statistics.median(column) * 1e3 for column in zip(*times, strict=True))
    return Compared(client, ours_ms, stock_ms, [there / here for here, there in times])


class Clients(NamedTuple):
    """The results of clients, and the reasons for missing ones."""

    found: list[Compared]
    absent: dict[str, str]


def measure(clients: Sequence[str], *, quick: bool) -> Clients:
    """Measure clients."""
    found, absent = list[Compared](), dict[str, str]()
    with Server("pullback") as ours:
        for client in clients:
            print(f"Client: {client}", flush=True)
            try:
                found.append(compare(client, ours, quick=quick))
            except Unavailable as why:
                absent[client] = str(why)
    return Clients(found, absent)


def markdown(clients: Clients) -> str:
    """Return a table, and a line for each missing client."""
    missing = [f"{client} is missing: {why}." for client, why in clients.absent.items()]
    return "\n\n".join([table(HEAD, [one.row() for one in clients.found]), *missing])


if __name__ == "__main__":
    print(markdown(measure(sys.argv[1:] or tuple(MIXED), quick=False)))
