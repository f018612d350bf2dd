"""Calls: the work of a request, from the reader of its body to the writer of its response."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from app.autodiff.evaluation import Evaluation, compute
from app.autodiff.point import Spec
from app.gradcheck.job import Job
from app.runtime.cancellation import Checkpoint
from app.telemetry.accounts import NOT_CHARGED, Account, Owner
from app.telemetry.counters import Counters
from app.tensors.casting import Source

# The time that work leaves for writing its answer, if a part of the work is worth an answer: a share of the time left.
SHARE_OF_ANSWER, LONGEST_ANSWER_S = 0.25, 1.0

Steps: TypeAlias = Callable[[Checkpoint], Any]
"""Work in steps, never batched; it calls the checkpoint between steps."""


@dataclass(frozen=True)
class CheckRun:
    """A gradient check; its result is the report. If its time ends, the report has what was found up to then.

    Apart from the deadline, it may run for ``budget_s`` seconds.
    """

    job: Job
    budget_s: float | None = None


class Portioned(ABC):
    """Long work that runs in portions. The scheduler runs the work of others between two of them."""

    @abstractmethod
    def run_portion(self, checkpoint: Checkpoint) -> bool:
        """Go on for a moment, and return whether all is done; after ``NotTraced``, it is called again."""

    @property
    @abstractmethod
    def result(self) -> Any:
        """The result, once all is done."""

    @property
    @abstractmethod
    def progress(self) -> tuple[int, int]:
        """How many of the parts of the work are done, and how many there are."""


Work: TypeAlias = Evaluation[Any] | Steps
"""The work of an operation at one point."""


def run(work: Work, checkpoint: Checkpoint) -> Any:
    """Return the result of the work of an operation, run as steps."""
    return work.finished(compute([work])[0]) if isinstance(work, Evaluation) else work(checkpoint)


@dataclass(slots=True)
class Call:
    """The work of a request, and the function that writes what the engine has computed.

    ``relies_on`` is the op that computes the answer, with its parameters, ``None`` if the work judges the op.
    It counts for ``op``, whose share of the queue it takes. ``sources`` are those of the tensors in the body. The
    caller of the engine sets the rest: the name of its ``key``; ``deadline``, a time of ``time.monotonic``;
    ``account``, which pays; ``is_large``, if the body is large, so that the work counts as long; ``is_alone``, if no
    other request is in progress.
    """

    op: str
    relies_on: Spec | None
    work: Work | Portioned | CheckRun
    is_long: bool
    write: Callable[[Any], Any]
    counters: Counters
    sources: Sequence[Source] = ()
    key: str = ""
    deadline: float = math.inf
    account: Account = NOT_CHARGED
    is_large: bool = False
    is_alone: bool = False

    @property
    def owner(self) -> Owner:
        """Whose share of the queue the work takes."""
        return Owner(self.op, self.key)


def with_time_to_answer(deadline: float) -> float:
    """Return when work must end so that its result, however incomplete, can be sent before ``deadline``."""
    return deadline - min(LONGEST_ANSWER_S, SHARE_OF_ANSWER * max(0.0, deadline - time.monotonic()))
