"""The goals for every op, and which cases meet them."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from benchmarks.cells import Outcome, figure, ratio
from benchmarks.op_cases import SIZES, Case
from benchmarks.op_requests import OURS, PEER

CONNECTIONS = (1, 16, 64)


@dataclass(frozen=True)
class Measured:
    """What a run found for a case: the bare call, and both servers by name at each number of connections.

    ``batching`` and ``mode`` are those of the catalogue, for the vjp.
    """

    case: Case
    batching: str
    mode: str
    call: Outcome = field(default_factory=Outcome)
    servers: dict[int, dict[str, Outcome]] = field(
        default_factory=lambda: {c: {name: Outcome() for name in (OURS, PEER)} for c in CONNECTIONS}
    )

    def forget(self) -> None:
        """Drop all samples: those of a warm-up."""
        for outcome in (self.call, *(one for both in self.servers.values() for one in both.values())):
            outcome.samples.clear()

    @property
    def rows_are_independent(self) -> bool:
        """Whether calls may share one call of TensorFlow."""
        return self.batching != "none"

    def rate_ratio(self, c: int) -> float | None:
        """Return how many times the peer's rate is ours."""
        return ratio(self.servers[c][OURS].rates, self.servers[c][PEER].rates)

    def cpu_ratio(self, c: int) -> float | None:
        """Return how many times our CPU per request is the peer's."""
        return ratio(self.servers[c][PEER].cpu_us, self.servers[c][OURS].cpu_us)

    def cpu_us(self, c: int) -> float | None:
        """Return our CPU per request, in microseconds."""
        return median(self.servers[c][OURS].cpu_us)

    def cpu_above_call(self, c: int) -> float | None:
        """Return our CPU per request beyond that of the bare call, in microseconds."""
        ours, call = self.cpu_us(c), median(self.call.cpu_us)
        return None if ours is None or call is None else ours - call


def median(rounds: Sequence[float]) -> float | None:
    """Return the median, ``None`` of nothing."""
    return statistics.median(rounds) if rounds else None


class Goal(NamedTuple):
    """A bound of a figure for some ops, at a number of connections."""

    whose: Literal["ops with independent rows", "other ops", "every op"]
    connections: int
    what: str
    found: Callable[[Measured, int], float | None]
    target: float
    unit: str
    at_least: bool = False

    @property
    def title(self) -> str:
        """The goal in words, without its bound."""
        return f"{self.whose}, c = {self.connections}: {self.what}"

    @property
    def bound(self) -> str:
        """The bound in words."""
        return f"at {'least' if self.at_least else 'most'} {self.text(self.target)}"

    def text(self, value: float) -> str:
        """A figure with its unit."""
        return f"{figure(value)}{self.unit}"

    def applies(self, one: Measured) -> bool:
        """Return whether it is a goal for this op."""
        return self.whose == "every op" or one.rows_are_independent == (self.whose == "ops with independent rows")

    def is_met(self, value: float) -> bool:
        """Return whether a figure is within the bound."""
        return value >= self.target if self.at_least else value <= self.target


ROWS, OTHERS, EVERY = "ops with independent rows", "other ops", "every op"
RATE, CPU, ABOVE = "rate relative to UM-Bridge", "CPU per request", "CPU per request above the bare call"
GOALS = (
    Goal(ROWS, 16, RATE, Measured.rate_ratio, 3, "x", at_least=True),
    Goal(ROWS, 64, RATE, Measured.rate_ratio, 5, "x", at_least=True),
    Goal(ROWS, 16, CPU, Measured.cpu_us, 90, " µs"),
    Goal(ROWS, 64, CPU, Measured.cpu_us, 90, " µs"),
    Goal(OTHERS, 16, ABOVE, Measured.cpu_above_call, 60, " µs"),
    Goal(EVERY, 1, ABOVE, Measured.cpu_above_call, 150, " µs"),
)


class Verdict(NamedTuple):
    """A goal at one size: the figures of the ops, from the farthest behind the goal to the farthest ahead."""

    goal: Goal
    size: str
    figures: list[tuple[str, float]]

    @property
    def missed(self) -> list[tuple[str, float]]:
        """The ops that miss the goal."""
        return [(op, value) for op, value in self.figures if not self.goal.is_met(value)]

    @property
    def met(self) -> str:
        """How many ops meet the goal."""
        return f"{len(self.figures) - len(self.missed)} of {len(self.figures)}"


def verdicts(found: Sequence[Measured]) -> list[Verdict]:
    """Return each goal at each size."""
    judged = list[Verdict]()
    for goal in GOALS:
        for size in SIZES:
            cases = [one for one in found if one.case.size == size and goal.applies(one)]
            values = [(one.case.op, goal.found(one, goal.connections)) for one in cases]
            figures = [(op, value) for op, value in values if value is not None]
            figures.sort(key=lambda figure: figure[1], reverse=not goal.at_least)
            judged.append(Verdict(goal, size, figures))
    return judged
