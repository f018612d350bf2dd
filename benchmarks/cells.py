"""The cells of the comparison, the outcome of each candidate in a cell, and their ratios."""

import statistics
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from benchmarks.load import Sample

LARGE = 1_000_000
MOST_US = 10_000


class Cell(NamedTuple):
    """Requests of ``n`` numbers over a number of connections."""

    n: int
    connections: int

    @property
    def title(self) -> str:
        """The cell in words."""
        return f"n = {self.n:,}, c = {self.connections}"


@dataclass
class Outcome:
    """One sample per round, or the reason ``why`` there is none."""

    samples: list[Sample] = field(default_factory=list[Sample])
    why: str = ""

    @property
    def rates(self) -> list[float]:
        """Requests per second, for each round."""
        return [] if self.why else [sample.rate for sample in self.samples]

    @property
    def cpu_us(self) -> list[float]:
        """The server's CPU time per request in microseconds, for each round."""
        return [] if self.why else [sample.cpu_us for sample in self.samples]

    def record(self, load: Callable[[], Sample]) -> None:
        """Add the sample of a load, or the reason why there is none."""
        try:
            sample = load()
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
            self.why = "failed"
            print(f"  failed: {error}", flush=True)
            return
        self.samples.append(sample)
        if sample.refused or sample.failed:
            self.why = f"{sample.refused + sample.failed} of {sample.requests + sample.failed} requests failed"

    def text(self, rounds: Sequence[float]) -> str:
        """The median of figures of the rounds, with the minimum and the maximum, or why there are none."""
        if not rounds:
            return self.why or "–"
        return f"{figure(statistics.median(rounds))} ({figure(min(rounds))}–{figure(max(rounds))})"


Outcomes: TypeAlias = dict[str, Outcome]
Found: TypeAlias = dict[Cell, Outcomes]

CELLS = (Cell(10, 1), Cell(10, 16), Cell(10, 64), Cell(1000, 16), Cell(LARGE, 1), Cell(LARGE, 4))


def wanted(name: str, cell: Cell) -> bool:
    """Return whether to measure a candidate in a cell.

    Without HTTP there are no connections, but large requests are compared with its single caller. UM-Bridge takes
    seconds for each large request and runs them one at a time, so four at once only wait.
    """
    if name == "in-process":
        return cell.connections == 1 or cell.n > CELLS[0].n
    return cell != Cell(LARGE, 4) or not name.startswith("umbridge")


def ratio(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return a figure divided by another, the median over the rounds; ``None`` if one was not measured."""
    return statistics.median(a / b for a, b in zip(one, other, strict=False)) if one and other else None


def figure(value: float) -> str:
    """Return a number with three significant digits, or with all digits before the decimal point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits


def duration(microseconds: float) -> str:
    """Return a time with its unit."""
    return f"{figure(microseconds)} µs" if microseconds < MOST_US else f"{figure(microseconds / 1e3)} ms"
