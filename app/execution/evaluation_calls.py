"""Calls of evaluations whose callers wait for a future: together, or if that fails one by one."""

import asyncio
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.autodiff.evaluation import Evaluation, compute
from app.autodiff.packing import Packing
from app.errors import too_late
from app.execution.members import PATIENCE_S, Call
from app.runtime.modes import KeyedArrays
from app.runtime.traces import NotTraced
from app.telemetry.accounts import NOT_CHARGED, Account
from app.telemetry.counters import Counters
from app.telemetry.stage_times import StageTimes


@dataclass(eq=False, slots=True)
class WaitingEvaluation:
    """An evaluation, the future of its caller, and once it has run its ``outcome`` or its ``error``.

    ``times`` are those of its request, if that is traced.
    """

    evaluation: Evaluation[Any]
    owner: str
    deadline: float
    future: asyncio.Future[KeyedArrays]
    counters: Counters
    times: StageTimes | None
    account: Account = NOT_CHARGED
    arrived: float = field(default_factory=time.perf_counter)
    has_begun: bool = False
    outcome: KeyedArrays | None = None
    error: BaseException | None = None
    on_release: Callable[[], None] | None = None
    may_wait: bool = True

    @property
    def units(self) -> int:
        """The units of the evaluation."""
        return self.evaluation.packed[1]

    @property
    def latest(self) -> float:
        """When its call ends: later than it, because its caller enforces the deadline."""
        return self.deadline + PATIENCE_S

    @property
    def is_done(self) -> bool:
        """Whether the caller has its result, or has given up."""
        return self.future.done()

    def run(self) -> None:
        """Run the evaluation by itself; raises ``NotTraced``."""
        try:
            (self.outcome,) = compute([self.evaluation])
        except NotTraced:
            raise
        except BaseException as error:  # noqa: BLE001 - it goes to the caller
            self.error = error

    def answer(self) -> None:
        """Set the result of the future, unless the caller has given up.

        An evaluation that was dropped because its deadline passed in the queue gets that as its error.
        """
        # The traceback of an error refers to this member: a member that kept its error would be a reference cycle.
        error, self.error = self.error, None
        if self.future.done():
            return
        if error is not None:
            self.future.set_exception(error)
        elif self.outcome is None:
            self.future.set_exception(too_late())
        else:
            self.future.set_result(self.outcome)


@dataclass(frozen=True)
class Alike:
    """The group of the evaluations with one ``Evaluation.batch_key``."""

    batch_key: Hashable
    packing: Packing = field(compare=False)

    def call(self, members: Sequence[WaitingEvaluation]) -> "EvaluationCall":
        """Return the call of these evaluations."""
        return EvaluationCall(self, members)

    def fail(self, member: WaitingEvaluation, error: BaseException) -> None:
        """Let the caller of an evaluation get its own error, or else this one."""
        member.error = member.error or error
        member.answer()


@dataclass(eq=False)
class EvaluationCall(Call[WaitingEvaluation]):
    """The call of evaluations with one ``Evaluation.batch_key``."""

    def run(self) -> None:
        """Run the evaluations whose callers wait, together or one by one, and count them; raises ``NotTraced``."""
        now, began = time.monotonic(), time.perf_counter()
        waiting = [member for member in self.members if not member.is_done and member.deadline > now]
        for member in waiting:
            member.has_begun = True
        if waiting:
            are_together = self._run_together(waiting)
            ended = time.perf_counter()
            self.seconds = ended - began if are_together and len(waiting) == len(self.members) else 0.0
            arrivals, members = [member.arrived for member in waiting], [member.times for member in waiting]
            shares = [(member.account, member.units) for member in waiting]
            waiting[0].counters.batched(arrivals, began, ended, members, shares)

    def finish(self) -> None:
        """Set the results of the futures."""
        for member in self.members:
            member.answer()

    @staticmethod
    def _run_together(waiting: Sequence[WaitingEvaluation]) -> bool:
        """Run evaluations in one call; if that fails, one by one, to find the faulty one, and return ``False``."""
        try:
            for member, outcome in zip(waiting, compute([each.evaluation for each in waiting]), strict=True):
                member.outcome = outcome
        except NotTraced:
            raise
        except BaseException as error:  # noqa: BLE001 - it goes to the caller
            if len(waiting) == 1:
                waiting[0].error = error
            else:
                for member in waiting:
                    member.run()
            return False
        return True
