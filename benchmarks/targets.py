"""The targets of the service, and whether it meets them: figures of one run, as ratios rather than rates."""

import statistics
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.alone import Alone
from benchmarks.candidates import CANDIDATES
from benchmarks.cells import LARGE, Cell, Found, figure, ratio
from benchmarks.clients import Clients
from benchmarks.fast_path import Express
from benchmarks.run import Run

JSON, BINARY = "pullback-json", "pullback-safetensors"
# Both services run the same code for these requests, so a difference is the cost of asking the fast path, or noise.
NO_SLOWER = 1.05


class Judged(NamedTuple):
    """A figure and its target; ``found`` is ``None`` if it was not measured."""

    what: str
    found: float | None
    target: float
    unit: str
    at_least: bool = False

    @property
    def verdict(self) -> str:
        """Whether the target is met."""
        if self.found is None:
            return "not measured"
        return "met" if (self.found >= self.target if self.at_least else self.found <= self.target) else "**missed**"

    def row(self) -> tuple[str, str, str, str]:
        """The name, figure, target and verdict, as text."""
        found = "–" if self.found is None else f"{figure(self.found)}{self.unit}"
        bound = "at least" if self.at_least else "at most"
        return self.what, found, f"{bound} {figure(self.target)}{self.unit}", self.verdict


def judged(run: Run) -> list[Judged]:
    """Return every figure that has a target."""
    return [
        *_beside_others(run.found),
        *_tail(run.found),
        *(_stock_clients(run.clients) if run.clients else ()),
        *(_express(run.express) if run.express else ()),
        *(_by_itself(run.alone) if run.alone else ()),
    ]


def _beside_others(found: Found) -> Iterator[Judged]:
    for c, least in ((1, 1.3), (16, 2), (64, 4)):
        yield from _against(found, Cell(10, c), JSON, "umbridge", least)
        if c > 1:
            yield from _against(found, Cell(10, c), JSON, "tesseract", 10)
    cpu_us = statistics.median(spent) if (spent := _cpu_us(found, Cell(10, 1), JSON)) else None
    yield Judged("n = 10, c = 1: JSON, CPU per request", cpu_us, 100, " us")
    yield from _against(found, Cell(1000, 16), JSON, "umbridge", 8)
    yield from _against(found, Cell(1000, 16), BINARY, "triton", 4)
    for c in (1, 4):
        yield from _against(found, Cell(LARGE, c), BINARY, "triton", 5)
        cell = Cell(LARGE, c)
        slower = ratio(_rates(found, cell, "in-process"), _rates(found, cell, BINARY))
        yield Judged(f"{cell.title}: safetensors, time relative to one caller without HTTP", slower, 2, "")
    dearer = ratio(_cpu_us(found, Cell(LARGE, 1), BINARY), _cpu_us(found, Cell(LARGE, 1), "sockets"))
    yield Judged("n = 1,000,000, c = 1: safetensors, CPU relative to sockets alone", dearer, 4, "")
    yield from _against(found, Cell(LARGE, 1), JSON, "umbridge", 10)


def _against(found: Found, cell: Cell, ours: str, peer: str, least: float) -> Iterator[Judged]:
    what = f"{cell.title}: {CANDIDATES[ours].title.removeprefix('Pullback, ')} against {CANDIDATES[peer].title}"
    faster = ratio(_rates(found, cell, ours), _rates(found, cell, peer))
    cheaper = ratio(_cpu_us(found, cell, peer), _cpu_us(found, cell, ours))
    yield Judged(f"{what}, requests per second", faster, least, "x", at_least=True)
    yield Judged(f"{what}, requests per second of CPU", cheaper, least, "x", at_least=True)


def _rates(found: Found, cell: Cell, name: str) -> list[float]:
    outcome = found.get(cell, {}).get(name)
    return outcome.rates if outcome else []


def _cpu_us(found: Found, cell: Cell, name: str) -> list[float]:
    outcome = found.get(cell, {}).get(name)
    return outcome.cpu_us if outcome else []


def _stock_clients(clients: Clients) -> Iterator[Judged]:
    speedups = {one.client: statistics.median(one.speedups) for one in clients.found}
    for client, least in (("umbridge", 1.1), ("triton", 2.5)):
        what = f"the client {client}, calls per second against its own server"
        yield Judged(what, speedups.get(client), least, "x", at_least=True)


def _express(express: Express) -> Iterator[Judged]:
    yield Judged("fast path, c = 16: Python function calls per request", express.calls, 20, "")
    for pair in express.pairs:
        if not pair.load.is_express:
            what = f"{pair.load.title}, c = 16: CPU with the fast path relative to without it"
            yield Judged(what, ratio(pair.on, pair.off), NO_SLOWER, "")


def _tail(found: Found) -> Iterator[Judged]:
    outcome = found.get(Cell(10, 64), {}).get(JSON)
    if outcome and outcome.rates:
        tail = statistics.median(sample.p99 / sample.p50 for sample in outcome.samples)
        p50, p99 = (1e3 * statistics.median(getattr(s, at) for s in outcome.samples) for at in ("p50", "p99"))
        yield Judged(f"n = 10, c = 64: JSON, p99 / p50 ({figure(p99)} ms / {figure(p50)} ms)", tail, 5, "")


def _by_itself(alone: Alone) -> Iterator[Judged]:
    spread = max(alone.costs.values()) / min(alone.costs.values()) if alone.costs else None
    yield Judged("cost per number, highest over lowest, n = 1,000 to 10,000,000", spread, 1.5, "")
    if shapes := alone.shapes:
        what = f"memory that {shapes.requests:,} requests of {shapes.shapes:,} shapes left behind"
        yield Judged(what, shapes.grown_mb, 50, " MB")
    for health in alone.health:
        what = f"/health/live under {health.load}: p99 (longest {figure(1e3 * health.longest)} ms)"
        yield Judged(what, 1e3 * health.p99, 100, " ms")
