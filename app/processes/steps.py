"""The steps of a check: what runs them, in which order, and until when."""

import math
import time
from collections.abc import AsyncGenerator, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, Self, TypeAlias

from app.gradcheck.job import Job
from app.gradcheck.report import DEADLINE, LESS, Report, Step
from app.telemetry.accounts import NOT_CHARGED, Account, Owner
from app.telemetry.counters import NOT_RECORDED, Counters

OP_BUDGET = f"raise PULLBACK_CHECKS_S, or {LESS}"
BUDGET = f"raise budget_s (--seconds), or {LESS}"
Follower: TypeAlias = Callable[[int, int], None]
"""Receives how many of the parts of the work are done, and how many there are."""

FOLLOWER: ContextVar[Follower | None] = ContextVar("follower", default=None)
"""The follower of the request that this task answers."""


class Limits(NamedTuple):
    """How long the steps of a check may run: all of them until a time of ``time.monotonic``, each for ``step_s``.

    Those of one op may run for ``op_s``. ``cure`` says how to allow all of them more time.
    """

    until: float
    cure: str = DEADLINE
    step_s: float = math.inf
    op_s: float = math.inf

    def within(self, budget_s: float | None) -> Self:
        """Return these limits, and no more than ``budget_s`` seconds from now."""
        until = math.inf if budget_s is None else time.monotonic() + budget_s
        return self._replace(until=until, cure=BUDGET) if until < self.until else self

    def of_op(self) -> Self:
        """Return the limits of an op whose checks begin now."""
        until = time.monotonic() + self.op_s
        return self._replace(until=until, cure=OP_BUDGET) if until < self.until else self

    def step(self) -> tuple[float, str]:
        """Return when a step that begins now must end, and how to allow it more time."""
        own = time.monotonic() + self.step_s
        return (own, DEADLINE) if own < self.until else (self.until, self.cure)


@dataclass
class OpChecks:
    """The checks of an op, which can run: their job, the report that the steps fill, and the owner in the queues.

    ``account`` pays for them.
    """

    job: Job
    report: Report
    limits: Limits
    owner: Owner
    counters: Counters = field(default_factory=lambda: NOT_RECORDED)
    account: Account = NOT_CHARGED

    @property
    def is_late(self) -> bool:
        """Whether no further step may begin."""
        return time.monotonic() >= self.limits.until


class Checker(Protocol):
    """Runs checks."""

    def steps(self, checks: OpChecks) -> AsyncGenerator[Step]:
        """Run the steps of an op's checks, in the order of ``in_order``; yield each before it runs.

        A step that does not end in time is left unfinished. Raises the ``PullbackError`` that ends all of them.
        """
        ...


def note_progress(done: int, total: int) -> None:
    """Tell the follower of this request, if it has one, how much is done."""
    if (follower := FOLLOWER.get()) is not None:
        follower(done, total)
