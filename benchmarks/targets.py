"""The targets of the service, and whether it meets them: figures of one run, as ratios rather than rates."""

import statistics
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.alone import Alone
from benchmarks.candidates import CANDIDATES
from benchmarks.cells import LARGE, Cell, Found, fastest_peer, figure, ratio, wanted

JSON, BINARY = "pullback-json", "pullback-safetensors"


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


def judged(found: Found, alone: Alone | None) -> list[Judged]:
    """Return every figure that has a target."""
    return [*_beside_others(found), *_tail(found), *(_by_itself(alone) if alone else ())]


def _beside_others(found: Found) -> Iterator[Judged]:
    for c, least in ((1, 1), (16, 2), (64, 2)):
        yield _against_fastest(found, Cell(10, c), JSON, least)
        if c > 1:
            yield _against(found, Cell(10, c), JSON, "tesseract", 10)
    yield _against_fastest(found, Cell(1000, 16), BINARY, 3)
    for c in (1, 4):
        yield _against_fastest(found, Cell(LARGE, c), BINARY, 3)
    for c in (1, 4):
        slower = ratio(found.get(Cell(LARGE, c), {}), "in-process", BINARY)
        what = f"{Cell(LARGE, c).title}: safetensors, time relative to one caller without HTTP"
        yield Judged(what, slower, 2, "")
    yield _against(found, Cell(LARGE, 1), JSON, "umbridge", 10)


def _against(found: Found, cell: Cell, ours: str, peer: str, least: float) -> Judged:
    what = f"{cell.title}: {CANDIDATES[ours].format} against {CANDIDATES[peer].title}"
    return Judged(what, ratio(found.get(cell, {}), ours, peer), least, "x", at_least=True)


def _against_fastest(found: Found, cell: Cell, ours: str, least: float) -> Judged:
    outcomes = found.get(cell, {})
    if peer := fastest_peer(outcomes):
        # The fastest of a few peers is a weaker claim, so the row gives their number.
        there = sum(bool(outcome.rates) for name, outcome in outcomes.items() if CANDIDATES[name].side == "peer")
        peers = sum(candidate.side == "peer" and wanted(name, cell) for name, candidate in CANDIDATES.items())
        among = "the fastest peer" if there == peers else f"the fastest of {there} out of {peers} peers"
        what = f"{cell.title}: {_format(ours)} against {among} ({CANDIDATES[peer].title})"
        return Judged(what, ratio(outcomes, ours, peer), least, "x", at_least=True)
    return Judged(f"{cell.title}: {_format(ours)} against the fastest peer", None, least, "x", at_least=True)


def _format(ours: str) -> str:
    return CANDIDATES[ours].title.removeprefix("Pullback, ")


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
