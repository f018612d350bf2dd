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

from benchmarks.cells import figure
from benchmarks.pages import table
from benchmarks.processes import HOST, ROOT, Server, Unavailable, environment

BUILD = ROOT / "build"
MIXES = ROOT / "benchmarks" / "mixes"
ROUNDS, QUICK_ROUNDS, CALLS_S, LIMIT_S = 7, 3, 3.0, 120
HEAD = (
    "client",
    "ms a call: Pullback",
    "its own server, NumPy",
    "times as fast",
    "CPU us a call: Pullback",
    "its own server",
)


class Mix(NamedTuple):
    """A client's mix of calls: its own server, and the equivalent path of Pullback."""

    stock: str
    path: str = ""


MIXED = {
    "umbridge": Mix("umbridge_stock"),
    "tesseract": Mix("tesseract_stock", "/tesseract/log1pexp"),
    "triton": Mix("triton_stock"),
}


class Cost(NamedTuple):
    """The average seconds per call of the mix, and the server's CPU seconds."""

    seconds: float
    cpu: float


def cost(client: str, server: Server, path: str, rounds: int) -> Cost:
    """Return the cost of a call; raise ``Unavailable`` if the client fails."""
    url = f"http://{HOST}:{server.port}{path}"
    command = [str(BUILD / f"clients-{client}" / "bin" / "python"), "-P", str(MIXES / f"{client}.py"), url, str(rounds)]
    if not Path(command[0]).exists():
        raise Unavailable("its environment is missing; make test-clients creates it")
    before = server.cpu_s()
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=LIMIT_S, cwd=MIXES, check=False
    )
    cpu = server.cpu_since(before)
    if done.returncode:
        raise Unavailable(f"the client failed: {done.stderr.strip().splitlines()[-1]}")
    seconds, calls = done.stdout.split()
    # The mix calls one more round, before it takes the time.
    return Cost(float(seconds) / int(calls), cpu / (int(calls) * (rounds + 1) / rounds))


class Compared(NamedTuple):
    """A client's costs at Pullback and at its own server, in each round."""

    client: str
    ours: list[Cost]
    stock: list[Cost]

    @property
    def speedups(self) -> list[float]:
        """The calls per second at Pullback divided by those at the client's own server."""
        return [stock.seconds / ours.seconds for ours, stock in zip(self.ours, self.stock, strict=True)]

    def row(self) -> tuple[str, ...]:
        """The client and the figures, as text."""
        spread = f"{statistics.median(self.speedups):.2f} ({min(self.speedups):.2f}–{max(self.speedups):.2f})"
        sides = (self.ours, self.stock)
        times = (f"{1e3 * statistics.median(one.seconds for one in side):.2f}" for side in sides)
        cpu = (figure(1e6 * statistics.median(one.cpu for one in side)) for side in sides)
        return self.client, *times, spread, *cpu


def compare(client: str, ours: Server, *, quick: bool) -> Compared:
    """Measure a client."""
    mix, found = MIXED[client], Compared(client, [], [])
    with Server(mix.stock) as stock:
        # A round of the mix is about twenty calls.
        rounds = max(1, int(CALLS_S / (20 * cost(client, stock, "", 2).seconds)))
        for _ in range(QUICK_ROUNDS if quick else ROUNDS):
            found.ours.append(cost(client, ours, mix.path, rounds))
            found.stock.append(cost(client, stock, "", rounds))
    return found


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
