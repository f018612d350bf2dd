"""The cells of the comparison, the outcome of each candidate in a cell, and their ratios."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from benchmarks.candidates import CANDIDATES
from benchmarks.load import Sample

LARGE = 1_000_000


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

    def text(self) -> str:
        """The median rate, with the minimum and the maximum."""
        if not self.rates:
            return self.why or "–"
        return f"{figure(statistics.median(self.rates))} ({figure(min(self.rates))}–{figure(max(self.rates))})"


Outcomes: TypeAlias = dict[str, Outcome]
Found: TypeAlias = dict[Cell, Outcomes]

CELLS = (Cell(10, 1), Cell(10, 16), Cell(10, 64), Cell(1000, 16), Cell(LARGE, 1), Cell(LARGE, 4))


def wanted(name: str, cell: Cell) -> bool:
    """Tell whether to measure a candidate in a cell.

    Without HTTP there are no connections, but large requests are compared with its single caller. UM-Bridge takes
    seconds for each large request and runs them one at a time, so four at once only wait.
    """
    if name == "in-process":
        return cell.connections == 1 or cell.n > CELLS[0].n
    return cell != Cell(LARGE, 4) or not name.startswith("umbridge")


def ratio(outcomes: Mapping[str, Outcome], one: str, other: str) -> float | None:
    """Return the rate of ``one`` divided by that of ``other``, the median over the rounds."""
    pair = [outcomes[name].rates for name in (one, other) if name in outcomes]
    if len(pair) != len((one, other)) or not all(pair):
        return None
    return statistics.median(a / b for a, b in zip(*pair, strict=False) if b)


def fastest_peer(outcomes: Mapping[str, Outcome]) -> str | None:
    """Return the name of the peer with the highest median rate."""
    return max(
        (name for name, outcome in outcomes.items() if CANDIDATES[name].side == "peer" and outcome.rates),
        key=lambda name: statistics.median(outcomes[name].rates),
        default=None,
    )


def figure(value: float) -> str:
    """Return a number with three significant digits, or with all digits before the decimal point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits
