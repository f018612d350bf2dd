"""The log: lines on stderr, as text for people or as JSON for collectors."""

import contextlib
import logging
import os
import time
from functools import lru_cache
from typing import Any, Literal

import orjson

STDERR = 2


class JsonFormatter(logging.Formatter):
    """One JSON object a record, its traceback in a field."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        line: dict[str, Any] = {
            "time": stamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


class TextFormatter(logging.Formatter):
    """``time LEVEL message``, the time as in the line of a request; a traceback below."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """Return the time of the record, in UTC."""
        del datefmt
        return stamp(record.created)


def logging_config(form: Literal["text", "json"]) -> dict[str, Any]:
    """Return the configuration for ``logging.config.dictConfig``; plain data, so that a worker process can have it."""
    formatter = (
        {"()": "app.telemetry.log.JsonFormatter"}
        if form == "json"
        else {"()": "app.telemetry.log.TextFormatter", "fmt": FORMAT}
    )
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": formatter},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "lines"}},
        "root": {"level": "WARNING", "handlers": ["stderr"]},
        "loggers": {"pullback": {"level": "INFO"}, "uvicorn.error": {"level": "WARNING"}},
    }


FORMAT = "%(asctime)s %(levelname)s %(message)s"


def stamp(seconds: float) -> str:
    """Return a time since the epoch as RFC 3339 has it: in UTC, to the millisecond."""
    whole = int(seconds)
    return f"{_second(whole)}.{int((seconds - whole) * 1000):03d}Z"


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def write_line(line: bytes) -> None:
    """Write one line, in one call: lines of several workers never mix.

    ``logging`` takes several times as long, which a line a request would feel. A log that nobody can take is no reason
    to fail a request.
    """
    with contextlib.suppress(OSError):
        os.write(STDERR, line + b"\n")
