"""Another version beside this one: ``make bench-against REV=...``, or ``python -m benchmarks.against REV``.

Both versions run at the same time, each from its own checkout and environment, with the fast path and without it. Every
cell (``against_loads``) loads them in turn, in short windows. Its figure is the server's CPU time per request, the
lower quartile of the windows: other load on the machine only ever adds to it. A cell is red if this version takes over
10 % more, in its first measurement and in each repetition, which come after all other cells. ``--quick`` takes fewer
and shorter windows. The page goes to ``build/bench/results/against.md``. The exit status is 1 if a cell is red.
"""

import argparse
import http.client
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from benchmarks.against_loads import FAST, GENERAL, MOST_REQUESTS, Load, loads
from benchmarks.cells import LARGE, figure
from benchmarks.checkouts import Checkout, here, of
from benchmarks.commit import last_release
from benchmarks.load import Posted, post
from benchmarks.pages import table
from benchmarks.processes import BUILD, ROOT, Server, exit_on_sigterm
from benchmarks.results import machine

PAGE = BUILD / "results" / "against.md"
RED = 1.10
# How often a cell is measured again before it is called red.
REPETITIONS = 2
# How many requests each server answers before the first window, one after the other: by then the fast path takes them.
FIRST = 5
# The CPU time in a second of all servers together, if none is busy.
IDLE_S = 0.1
PATHS = {FAST: "", GENERAL: ", general path"}


class Plan(NamedTuple):
    """The number of windows of each version, and the seconds of one."""

    windows: int
    large_windows: int
    seconds: float


FULL, QUICK = Plan(9, 3, 0.15), Plan(4, 1, 0.08)


@dataclass
class Cell:
    """A load on one server over some connections, and its figures: CPU microseconds, of the other version and this one.

    ``why`` says why there are none.
    """

    load: Load
    server: str
    connections: int
    measured: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    why: str = ""

    @property
    def title(self) -> str:
        """The cell in words."""
        return f"{self.load.title}{PATHS[self.server]}, n = {self.load.n:,}, c = {self.connections}"

    @property
    def ratio(self) -> float:
        """The time of this version divided by that of the other, the least of all measurements."""
        return min(new / old for old, new in self.measured)

    @property
    def is_red(self) -> bool:
        """Whether this version failed, or is slower in every measurement."""
        return self.why.startswith("this version") or (bool(self.measured) and self.ratio > RED)

    def row(self) -> tuple[str, ...]:
        """Return the line of the table."""
        if not self.measured:
            return self.title, "–", "–", "–", f"**red**: {self.why}" if self.is_red else self.why
        old, new = min(self.measured, key=lambda pair: pair[1] / pair[0])
        times = f"measured {len(self.measured)} times" if len(self.measured) > 1 else ""
        return self.title, figure(old), figure(new), f"{self.ratio:.2f}", f"**red**, {times}" if self.is_red else times


class Pair(NamedTuple):
    """The servers of both versions, by name."""

    old: Mapping[str, Server]
    new: Mapping[str, Server]

    def measure(self, cell: Cell, posted: Posted | None, plan: Plan) -> None:
        """Load both versions in turn, and add the figures to the cell."""
        servers = self.old[cell.server], self.new[cell.server]
        found: tuple[list[float], list[float]] = [], []
        windows = plan.large_windows if cell.load.n >= LARGE else plan.windows
        for window in range(windows):
            order = (0, 1) if window % 2 else (1, 0)
            for each in order:
                with ExitStack() as fresh:
                    sent = posted or fresh.enter_context(Posted(cell.load.requests()))
                    sample = sent.load(servers[each], cell.connections, plan.seconds, MOST_REQUESTS)
                if sample.refused or sample.failed:
                    whose = ("the other version", "this version")[each]
                    cell.why = f"{whose} failed {sample.refused + sample.failed} requests"
                    cell.measured.clear()
                    return
                found[each].append(sample.cpu_us)
        cell.measured.append((lower(found[0]), lower(found[1])))


def lower(figures: Sequence[float]) -> float:
    """Return the lower quartile."""
    return statistics.quantiles(figures, n=4, method="inclusive")[0] if len(figures) > 1 else figures[0]


def start(checkout: Checkout, stack: ExitStack) -> Mapping[str, Server]:
    """Start both servers of a version."""
    print(f"Starting {checkout.commit}", flush=True)
    return {name: stack.enter_context(Server(name, checkout.root, checkout.python)) for name in (FAST, GENERAL)}


def wait_until_idle(servers: Sequence[Server]) -> None:
    """Wait until the servers have warmed up, for half a minute at most: then they use no CPU time."""
    for _ in range(30):
        before = [server.cpu_s() for server in servers]
        time.sleep(1.0)
        if sum(server.cpu_since(spent) for server, spent in zip(servers, before, strict=True)) < IDLE_S:
            return


def check(load: Load, pair: Pair) -> str:
    """Send the first requests to each server, and return why a version cannot answer them."""
    first = [request for request, _ in zip(load.requests(), range(FIRST if load.n < LARGE else 1), strict=False)]
    for whose, servers in (("the other version", pair.old), ("this version", pair.new)):
        for name in dict.fromkeys(name for name, _ in load.cells):
            for request in first:
                status, answer = post(servers[name].port, request)
                if status != http.client.OK:
                    print(f"  {whose}: {status}: {answer[:200]!r}", flush=True)
                    return f"{whose} answers {status}"
    return ""


def measure(pair: Pair, plan: Plan, load: Load, cells: Iterable[Cell]) -> None:
    """Measure cells of one load."""
    why = check(load, pair)
    with ExitStack() as stack:
        posted = None if load.is_fresh else stack.enter_context(Posted(load.requests()))
        for cell in cells:
            cell.why = cell.why or why
            if not cell.why:
                if not cell.measured:
                    pair.measure(cell, posted, plan._replace(windows=1, large_windows=1))
                    cell.measured.clear()
                pair.measure(cell, posted, plan)
            print("  ".join(cell.row()), flush=True)


def run(measure: Callable[[Load, Sequence[Cell]], None], only: str) -> list[Cell]:
    """Return all cells whose titles have ``only`` in them, measured, the red ones again."""
    cells = [Cell(load, server, c) for load in loads() for server, c in load.cells]
    cells = [cell for cell in cells if only in cell.title]
    for repetition in range(1 + REPETITIONS):
        left = [cell for cell in cells if not repetition or (cell.is_red and cell.measured)]
        for load in {id(cell.load): cell.load for cell in left}.values():
            measure(load, [cell for cell in left if cell.load is load])
    return cells


def markdown(cells: Sequence[Cell], old: Checkout, new: Checkout, kind: str) -> str:
    """Return the page."""
    red = [cell for cell in cells if cell.is_red]
    verdict = f"{len(red)} of {len(cells)} cells are red" if red else f"None of {len(cells)} cells is red"
    ratios = [cell.ratio for cell in cells if cell.measured]
    return f"""\
# {new.commit}, against {old.commit}

`make bench-against` writes this page. Figures are CPU microseconds of the server per request, the lower quartile of
windows in turn; red is more than {RED:.2f} times the other version's, in each of {1 + REPETITIONS} measurements.

{verdict}; the median ratio is {statistics.median(ratios or [1.0]):.2f}.

{table(("cell", "other", "this", "ratio", ""), [cell.row() for cell in (*red, *(c for c in cells if not c.is_red))])}

- {kind}; {machine()}.
- Other: {old.commit}. This: {new.commit}.
"""


def options() -> argparse.Namespace:
    """Return the command line options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.against", description="Another version beside this one."
    )
    about = "the other version: a commit, a tag or a branch (default: the last release)"
    parser.add_argument("revision", nargs="?", default=last_release(), help=about)
    parser.add_argument("--quick", action="store_true", help="a short version, for use while tuning")
    parser.add_argument("--only", default="", metavar="TEXT", help="cells with this text in their titles")
    return parser.parse_args()


def main() -> int:
    """Run, print and write; return the exit status."""
    chosen = options()
    exit_on_sigterm()
    old, new = of(chosen.revision), here()
    began, busy = time.monotonic(), os.getloadavg()[0]
    with ExitStack() as stack:
        pair = Pair(start(old, stack), start(new, stack))
        wait_until_idle([*pair.old.values(), *pair.new.values()])
        cells = run(partial(measure, pair, QUICK if chosen.quick else FULL), chosen.only)
    if not cells:
        raise SystemExit(f"Expected cells with {chosen.only!r} in their titles, found none.")
    minutes = (time.monotonic() - began) / 60
    kind = f"{'A quick' if chosen.quick else 'The whole'} run of {minutes:.0f} minutes, load {busy:.1f} before it"
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text := markdown(cells, old, new, kind))
    print(f"\n{text}\nWritten to {PAGE.relative_to(ROOT)}")
    return int(any(cell.is_red for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
