"""Triton's settings of traces and of the log: requests may read them, but not change them."""

from collections.abc import Mapping
from typing import Any

TRACE: Mapping[str, Any] = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "",
    "trace_mode": "triton",
}
"""What Triton answers before anyone has enabled traces."""
LOG: Mapping[str, Any] = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}
"""What Triton answers when it logs to the console, with its default settings."""

TRACE_IS_FIXED = "trace settings cannot be changed: tracing is not supported, but GET /metrics has the timings"
LOG_IS_FIXED = "log settings cannot be changed by requests: the environment has the format (PULLBACK_LOG)"
