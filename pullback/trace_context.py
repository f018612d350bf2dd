"""The trace of the caller, as OpenTelemetry's API knows it, for the headers of a request (W3C Trace Context).

The application has loaded that API if it traces; this module never imports it.
"""

import sys
from collections.abc import Mapping
from typing import Any

API, NAMES = "opentelemetry.trace", ("Traceparent", "Tracestate")
# The flags that are defined: whether the trace is sampled, and whether its id is random.
FLAGS = 3


def trace_headers(given: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that name the current span; none without one, or if a header of the client is ``given``."""
    # Another thread may be importing it.
    get_current_span: Any = getattr(sys.modules.get(API), "get_current_span", None)
    if get_current_span is None or not given.keys().isdisjoint(NAMES):
        return {}
    span = get_current_span().get_span_context()
    if not span.is_valid:
        return {}
    headers = {"traceparent": f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags & FLAGS:02x}"}
    state = span.trace_state.to_header()
    return {**headers, "tracestate": state} if state and state.isascii() and state.isprintable() else headers
