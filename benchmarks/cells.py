"""What is measured beside each other: the cells, what each candidate was found to do in one, and ratios of that."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from benchmarks.candidates import CANDIDATES
from benchmarks.load import Sample

LARGE = 1_000_000


class Cell(NamedTuple):
    """Requests of ``n`` numbers over so many connections."""

    n: int
    connections: int

    @property
    def title(self) -> str:
        """The cell in words."""
        return f"n = {self.n:,}, c = {self.connections}"


@dataclass
class Outcome:
    """A sample a round, or ``why`` there is none."""

    samples: list[Sample] = field(default_factory=list[Sample])
    why: str = ""

    @property
    def rates(self) -> list[float]:
        """Requests a second, round by round."""
        return [] if self.why else [sample.rate for sample in self.samples]

    def text(self) -> str:
        """The median rate, with the least and the greatest."""
        if not self.rates:
            return self.why or "–"
        return f"{figure(statistics.median(self.rates))} ({figure(min(self.rates))}–{figure(max(self.rates))})"


Outcomes: TypeAlias = dict[str, Outcome]
Found: TypeAlias = dict[Cell, Outcomes]

CELLS = (Cell(10, 1), Cell(10, 16), Cell(10, 64), Cell(1000, 16), Cell(LARGE, 1), Cell(LARGE, 4))


def wanted(name: str, cell: Cell) -> bool:
    """Tell whether a candidate has anything to say in a cell.

    Without HTTP there are no connections, but its single caller is what large requests are held against. UM-Bridge
    takes seconds for a large request, one after the other: four at once only wait.
    """
    if name == "in-process":
        return cell.connections == 1 or cell.n > CELLS[0].n
    return cell != Cell(LARGE, 4) or not name.startswith("umbridge")


def ratio(outcomes: Mapping[str, Outcome], one: str, other: str) -> float | None:
    """Return how many times the rate of ``other`` that of ``one`` is, the median over the rounds."""
    pair = [outcomes[name].rates for name in (one, other) if name in outcomes]
    if len(pair) != len((one, other)) or not all(pair):
        return None
    return statistics.median(a / b for a, b in zip(*pair, strict=False) if b)


def fastest_peer(outcomes: Mapping[str, Outcome]) -> str | None:
    """Return the name of the peer with the greatest median rate."""
    return max(
        (name for name, outcome in outcomes.items() if CANDIDATES[name].side == "peer" and outcome.rates),
        key=lambda name: statistics.median(outcomes[name].rates),
        default=None,
    )


def figure(value: float) -> str:
    """Return a number in three digits, or with all that stand before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits
