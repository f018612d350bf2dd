"""One trace of the cache: its key, and itself: complete, in progress, or failed."""

import math
import time
import weakref
from concurrent.futures import Future
from copy import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from app.errors import Overloaded, PullbackError
from app.runtime.cancellation import Block
from app.runtime.xla_sessions import XlaSession

# How long a trace may take in all that goes on without a caller.
BACKGROUND_S = 600.0
# So long past its deadline, a trace that has not stopped is late.
LATE_S = 5.0
# When a client should try again while a trace goes on.
RETRY_S = 5


class Reference(NamedTuple):
    """What a trace is of: weak references, because it must not outlive the op.

    While there are traces of ``program``, its ``op`` holds it. ``kind`` tells programs that are made of it from it.
    """

    program: weakref.ref[Any]
    op: weakref.ref[Any]
    kind: str = ""


# The attribute of an op with its traced programs, by the keys of their traces.
_TRACED = "_traced"


TraceKey: TypeAlias = tuple[Reference, *tuple[Any, ...]]


@dataclass(eq=False)
class Entry:
    """A trace of ``op``, or its error, and when it was last used. XLA compiles it in its ``session``, if it has one.

    ``block`` is the work of its first caller, which it ``may_outlive``; ``is_in_background`` once it has, and there,
    ``active`` when it made its last node. A failed one is tried again after ``refused_until``. Times are those of
    ``time.monotonic``.
    """

    op: str
    owner: str
    is_compiled: bool
    is_permanent: bool
    used: int
    block: Block
    may_outlive: bool
    future: Future[Any] = field(default_factory=Future[Any])
    trace: Any = None
    session: XlaSession | None = None
    nodes: int = 0
    began: float = field(default_factory=time.monotonic)
    is_in_background: bool = False
    active: float = math.inf
    refused_until: float = math.inf

    @property
    def is_late(self) -> bool:
        """Whether it should have stopped."""
        return time.monotonic() > self.block.deadline + LATE_S

    def result(self) -> Any:
        """Return the complete trace, or raise its error."""
        if self.refused_until < math.inf:
            raise self.refusal()
        error = self.future.exception()
        # The traceback of a copy ends with it; one that is kept would keep the tensors of a request alive.
        if isinstance(error, PullbackError):
            raise copy(error)
        return self.future.result()

    def refusal(self) -> Overloaded:
        """Return the error for a request that needs this trace, which goes on in the background or took too long."""
        now = time.monotonic()
        if self.refused_until == math.inf:
            message = f"op {self.op} is still traced for this mode and derivative, since {now - self.began:.0f} s"
            return Overloaded(f"{message}; try again later", retry_after_s=RETRY_S)
        message = f"tracing op {self.op} for this mode and derivative took more than {BACKGROUND_S:.0f} s"
        cure = "try mode eager, which is not traced, or this again later"
        return Overloaded(f"{message}; {cure}", retry_after_s=max(1, math.ceil(self.refused_until - now)))


def traced(key: TraceKey) -> dict[TraceKey, Any]:
    """Return the traced programs that the op of a trace holds; empty if the op is gone."""
    op: object | None = key[0].op()
    found: dict[TraceKey, Any] = {} if op is None else vars(op).setdefault(_TRACED, {})
    return found
