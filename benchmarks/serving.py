"""Pullback beside other servers of gradients, in one run: ``make bench``, or ``python -m benchmarks.serving``.

All servers compute y = log1p(e^x) and dx = dy σ(x) in float32; a request has x and dy, the response dx. Each server is
one process in a separate environment, and a load in another process sends requests in the server's fastest format.
Every candidate's response is checked once against NumPy. In every cell each candidate is warmed up; then every round
loads each of them once, in turn, so that other load on the machine affects all of them alike. Results are the median
of the rounds with the minimum and the maximum; a ratio is the median of the rounds' ratios.

``--quick`` runs a short version, and ``--only NAME,...`` selects candidates and parts: ``express``, ``clients``, and
``alone``, which is Pullback by itself. Their results go to ``build/bench/results``, those of a whole run to
``benchmarks/results`` and into ``docs/performance.md``.
"""

import argparse
import http.client
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import islice, starmap
from pathlib import Path
from typing import NamedTuple

from benchmarks.alone import measure as measure_alone
from benchmarks.candidates import CANDIDATES, Candidate, draws, is_gradient
from benchmarks.cells import CELLS, LARGE, Cell, Found, Outcome, wanted
from benchmarks.clients import MIXED
from benchmarks.clients import measure as measure_clients
from benchmarks.fast_path import measure as measure_express
from benchmarks.in_process import InProcess
from benchmarks.load import Posted, post
from benchmarks.pages import replace
from benchmarks.plot import plot
from benchmarks.processes import BUILD, ROOT, Server, Unavailable, exit_on_sigterm
from benchmarks.results import markdown, summary
from benchmarks.run import Run

ALONE, EXPRESS, CLIENTS = "alone", "express", "clients"
PAGE_PART = "serving table"
CHECKED = 5
CHOICES = (*CANDIDATES, EXPRESS, CLIENTS, ALONE)


class Plan(NamedTuple):
    """The number of rounds and their seconds; a large cell has fewer requests, which take longer."""

    rounds: int
    seconds: int
    large_rounds: int
    large_seconds: int

    def of(self, cell: Cell) -> tuple[int, int]:
        """Return rounds and seconds for a cell."""
        return (self.large_rounds, self.large_seconds) if cell.n >= LARGE else (self.rounds, self.seconds)


FULL, QUICK = Plan(4, 2, 4, 2), Plan(2, 1, 2, 1)


Running = Mapping[str, Server | InProcess]


def start_servers(names: Sequence[str], stack: ExitStack) -> tuple[Running, dict[str, str]]:
    """Return the servers of the candidates, and the reasons for missing ones."""
    running: dict[str, Server | InProcess] = {}
    absent: dict[str, str] = {}
    for name in dict.fromkeys(CANDIDATES[name].server for name in names):
        print(f"Starting {name}", flush=True)
        try:
            server = InProcess("benchmarks.servers.in_process") if name == "in_process" else Server(name)
            running[name] = stack.enter_context(server)
        except Unavailable as error:
            absent[name] = str(error)
            print(f"  left out: {error}", flush=True)
    return running, absent


def measure(cell: Cell, names: Sequence[str], running: Running, plan: Plan) -> dict[str, Outcome]:
    """Measure a cell in rounds."""
    rounds, seconds = plan.of(cell)
    outcomes = {name: Outcome() for name in names if wanted(name, cell) and CANDIDATES[name].server in running}
    print(f"{cell.title}: {rounds} rounds of {len(outcomes)} candidates, {seconds} s each", flush=True)
    with ExitStack() as stack:
        posted = {
            name: stack.enter_context(Posted(starmap(CANDIDATES[name].request, draws(cell.n)))) for name in outcomes
        }
        for name, outcome in outcomes.items():
            outcome.why = check(CANDIDATES[name], running, cell)
            if not outcome.why:
                load(outcome, cell, running[CANDIDATES[name].server], posted[name], 1)
                outcome.samples.clear()
        for _ in range(rounds):
            for name, outcome in outcomes.items():
                if not outcome.why:
                    load(outcome, cell, running[CANDIDATES[name].server], posted[name], seconds)
    for name, outcome in outcomes.items():
        cpu = f"{outcome.text(outcome.cpu_us)} us of CPU" if outcome.cpu_us else ""
        print(f"  {CANDIDATES[name].title:<28} {outcome.text(outcome.rates):<32} {cpu}", flush=True)
    return outcomes


def load(outcome: Outcome, cell: Cell, server: Server | InProcess, posted: Posted, seconds: int) -> None:
    """Load a server once, and record the sample or the failure."""
    if isinstance(server, InProcess):
        outcome.record(partial(server.sample, cell.n, seconds))
    else:
        outcome.record(partial(posted.load, server, cell.connections, seconds))


def check(candidate: Candidate, running: Running, cell: Cell) -> str:
    """Send a few requests, and return the error of a response: a server may answer the first by another way."""
    server = running[candidate.server]
    if isinstance(server, InProcess):
        return ""
    for x, dy in islice(draws(cell.n), CHECKED if cell.n < LARGE else 1):
        try:
            status, answer = post(server.port, candidate.request(x, dy))
        except OSError as error:
            return f"no answer: {error}"
        if status != http.client.OK:
            print(f"  {candidate.title}: refused with {status}: {answer[:200]!r}", flush=True)
            return "refused"
        if candidate.gradient is not None and not is_gradient(candidate.gradient(answer), x, dy):
            return "wrong numbers"
    return ""


def options() -> argparse.Namespace:
    """Return the command line options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description="Pullback beside other servers.")
    parser.add_argument("--quick", action="store_true", help="a short version, for use while tuning")
    parser.add_argument("--only", metavar="NAME,...", help=f"candidates and parts, of {', '.join(CHOICES)}")
    chosen = parser.parse_args()
    only = chosen.only.split(",") if chosen.only else CHOICES
    chosen.names = [name for name in CHOICES if name in only]
    if strange := [name for name in only if name not in CHOICES]:
        parser.error(f"--only: expected some of {', '.join(CHOICES)}, got {', '.join(strange)}")
    return chosen


def main() -> None:
    """Run, print and write."""
    chosen = options()
    exit_on_sigterm()
    began, busy = time.monotonic(), os.getloadavg()[0]
    names = [name for name in chosen.names if name in CANDIDATES]
    found, plan = Found(), QUICK if chosen.quick else FULL
    with ExitStack() as stack:
        running, absent = start_servers(names, stack)
        for cell in CELLS if names else ():
            found[cell] = measure(cell, names, running, plan)
    express = measure_express(quick=chosen.quick) if EXPRESS in chosen.names else None
    clients = measure_clients(tuple(MIXED), quick=chosen.quick) if CLIENTS in chosen.names else None
    alone = measure_alone(quick=chosen.quick) if ALONE in chosen.names else None
    minutes = (time.monotonic() - began) / 60
    kind = f"{'A quick' if chosen.quick else 'The whole'} run of {minutes:.0f} minutes, load {busy:.1f} before it"
    run = Run(names, found, absent, express, clients, alone, kind)
    if chosen.quick or chosen.only:
        write(BUILD / "results", run)
    else:
        write(ROOT / "benchmarks" / "results", run)
        replace(ROOT / "docs" / "performance.md", PAGE_PART, summary(run))


def write(folder: Path, run: Run) -> None:
    """Write the page and the plot, and print the page."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "serving.md").write_text(text := markdown(run))
    if run.found:
        plot(run.found, folder / "serving.png")
    print(f"\n{text}\nWritten to {folder.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
