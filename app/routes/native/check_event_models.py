"""The models of the events of ``/v1/checks``."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel

from app.requests.answers import Problem
from app.routes.native.check_models import CheckAnswer, CheckEntry, CheckName, Verdict
from app.routes.native.health import UnavailableOp


class _Event(BaseModel):
    """An event of the stream."""

    model_config = ConfigDict(extra="forbid")


class StartEvent(_Event):
    """The first event: what will be checked."""

    event: Literal["start"]
    ops: list[str] = Field(description="The ops to check.")
    unavailable: list[UnavailableOp] = Field(description="The requested ops that are not served, and why.")
    steps: int = Field(description="The number of steps.")


class ProgressEvent(_Event):
    """A step starts."""

    event: Literal["progress"]
    op: str = Field(description="The op of the step.")
    check: CheckName = Field(description="The check of the step.")
    done: int = Field(description="The number of finished steps.")
    steps: int = Field(description="The number of steps.")
    left_s: float | None = Field(description="About how many seconds are left; null: not known yet.")


class FindingEvent(_Event):
    """A finding of a step that has ended; only if the request has `findings`. The report repeats it."""

    event: Literal["finding"]
    op: str = Field(description="The op of the step.")
    finding: CheckEntry


class ReportEvent(_Event):
    """All steps of an op have ended."""

    event: Literal["report"]
    report: CheckAnswer = Field(description="The report on the op.")


class SummaryEvent(_Event):
    """The last event of a complete stream; each count is a number of ops."""

    event: Literal["summary"]
    verdict: Verdict = Field(description="The verdict on all ops.")
    pass_: int = Field(alias="pass")
    fail: int
    error: int = Field(description="Ops where the checker failed.")
    inconclusive: int
    unfinished: int = Field(description="Ops with checks not run: out of time.")
    seconds: float = Field(description="The duration.")


class ErrorEvent(_Event):
    """The last event of a stream that ends early."""

    event: Literal["error"]
    problem: Problem = Field(description="The reason why the stream ends early.")


AnyEvent = StartEvent | ProgressEvent | FindingEvent | ReportEvent | SummaryEvent | ErrorEvent


class ChecksAnswer(RootModel[Annotated[AnyEvent, Field(discriminator="event")]]):
    """One event of the stream."""
