"""When the stages of a traced request ran: the measurements that ``counters`` add up, kept for its spans.

Nothing is kept for a request that is not traced.
"""

import re
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, get_args

Stage: TypeAlias = Literal["parse", "queue", "compute", "serialise"]
STAGES: tuple[Stage, ...] = get_args(Stage)

# The most intervals of a request that are kept: a job has one for each of thousands of portions.
MAX_INTERVALS = 64
NS = 1_000_000_000
TRACEPARENT, TRACESTATE = b"traceparent", b"tracestate"
LISTED = frozenset((TRACEPARENT, TRACESTATE))
"""The headers whose values are joined by commas where a request has several: two parents are none."""
# Version ff, and ids of zeros, are invalid. Later versions may append fields.
_PARENT = re.compile(
    rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL
)
_FIRST_VERSION = b"00"
# The flags that are defined: whether the trace is sampled, and whether its id is random.
SAMPLED, RANDOM = 1, 2
# The longest state that is passed on. The specification requires 512.
MAX_STATE = 512


@dataclass(eq=False)
class Batch:
    """A TensorFlow call for several requests of an operation on an op, of which ``members`` are traced.

    ``context`` identifies its span once that exists.
    """

    op: str
    operation: str
    size: int
    began: float
    ended: float
    members: "list[StageTimes]" = field(default_factory=list["StageTimes"])
    context: Any = None


class Interval(NamedTuple):
    """When a stage ran, in times of ``time.perf_counter``, and the batch that it was a part of."""

    stage: Stage
    began: float
    ended: float
    batch: Batch | None = None


@dataclass(eq=False)
class StageTimes:
    """The intervals of a traced request, and its span, which has these ids in hexadecimal.

    ``epoch`` is the zero of ``time.perf_counter``, in nanoseconds since 1970. ``dropped`` counts the intervals that are
    not kept.
    """

    span: Any
    epoch: int
    trace_id: str
    span_id: str
    intervals: list[Interval] = field(default_factory=list[Interval])
    dropped: int = 0

    def add(self, stage: Stage, began: float, ended: float, batch: Batch | None = None) -> None:
        """Keep an interval, on any thread."""
        if len(self.intervals) < MAX_INTERVALS:
            self.intervals.append(Interval(stage, began, ended, batch))
        else:
            self.dropped += 1

    def epoch_ns(self, moment: float) -> int:
        """Return a time of ``time.perf_counter`` in nanoseconds since 1970."""
        return self.epoch + round(moment * NS)


CURRENT: ContextVar[StageTimes | None] = ContextVar("CURRENT", default=None)
"""The times of the request that this code works for: in its task, and in its work on a thread of the scheduler."""


class Traced(Protocol):
    """A request that may be traced, with the headers of its caller's trace; its first byte came at ``began``."""

    method: str
    began: float

    @property
    def traceparent(self) -> bytes: ...  # noqa: D102
    @property
    def tracestate(self) -> bytes: ...  # noqa: D102


class TracedAnswer(Traced, Protocol):
    """A traced request that has been answered, as its span shows it: ``route`` is the template of its path."""

    target: str
    status: int
    id: bytes
    times: StageTimes | None

    @property
    def scheme(self) -> str: ...  # noqa: D102
    @property
    def route(self) -> str: ...  # noqa: D102


class Tracing(Protocol):
    """What makes the spans of requests; ``app.telemetry.spans`` implements it."""

    def begin(self, request: Traced) -> StageTimes | None:
        """Return the times of a request that is traced, ``None`` if it is not sampled."""
        ...

    def end(self, request: TracedAnswer, times: StageTimes, op: str, operation: str, ended: float) -> None:
        """Make the spans of a request that has been answered, from its times."""
        ...

    def close(self) -> None:
        """Send the spans that are left, in a bounded time."""
        ...


class Parent(NamedTuple):
    """The span of the caller, in hexadecimal, and the flags of its trace."""

    trace_id: str
    span_id: str
    flags: int

    def header(self) -> bytes:
        """Return the value of ``traceparent`` for this span."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}".encode()


def parent_of(traceparent: bytes) -> Parent | None:
    """Return the span that a header names, ``None`` if there is no header, or an invalid one."""
    found = _PARENT.fullmatch(traceparent) if traceparent else None
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if more is not None and version == _FIRST_VERSION:
        return None
    return Parent(trace_id.decode(), span_id.decode(), int(flags, 16) & (SAMPLED | RANDOM))


def state_of(tracestate: bytes) -> str:
    """Return the state that the caller's systems pass on, empty if there is none, or too much."""
    return tracestate.decode() if len(tracestate) <= MAX_STATE and tracestate.isascii() else ""
