"""The trace that a request belongs to, by the headers ``traceparent`` and ``tracestate`` (W3C Trace Context)."""

import re
from typing import NamedTuple

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
