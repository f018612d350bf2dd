"""The log: lines on stderr, as text for people or as JSON for log collectors."""

import logging
import time
from collections.abc import Iterable
from typing import Any, Literal

import orjson

from app.telemetry.line_writer import STDERR
from pullback.wording import without_terminal_codes

# A traceback contains the message of an exception, which may have any length.
MAX_TEXT = 1 << 16
FORMAT = "%(asctime)s %(levelname)s %(message)s"


class TextFormatter(logging.Formatter):
    """``time LEVEL message``, with the time as in the access log; a traceback follows."""

    converter = time.gmtime
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text."""
        return _bounded(super().format(record))


class JsonFormatter(TextFormatter):
    """One JSON object per record, with its traceback in a field."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        line: dict[str, Any] = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _bounded(record.getMessage()),
        }
        if record.exc_info:
            line["traceback"] = _bounded(self.formatException(record.exc_info))
        return orjson.dumps(line, default=str).decode()


class Handler(logging.Handler):
    """The handler that writes records among the lines of requests, on the thread of the log."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        try:
            STDERR.write((self.format(record).encode(),))
        except Exception:  # noqa: BLE001 - as every handler of the standard library does
            self.handleError(record)

    def flush(self) -> None:
        """Wait until the lines are written, for a short time."""
        STDERR.flush()


def as_lines(texts: Iterable[str], form: Literal["text", "json"]) -> list[bytes]:
    """Return what the service prints on stdout, in the form of its log."""
    if form == "text":
        return [text.encode() for text in texts]
    records = (logging.LogRecord("pullback", logging.INFO, "", 0, text, None, None) for text in texts)
    return [JsonFormatter().format(record).encode() for record in records]


def logging_config(form: Literal["text", "json"]) -> dict[str, Any]:
    """Return the configuration for ``logging.config.dictConfig``; plain data, which can be passed to a worker."""
    formatter = (
        {"()": "app.telemetry.log.JsonFormatter"}
        if form == "json"
        else {"()": "app.telemetry.log.TextFormatter", "fmt": FORMAT}
    )
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": formatter},
        "handlers": {"stderr": {"class": "app.telemetry.log.Handler", "formatter": "lines"}},
        "root": {"level": "WARNING", "handlers": ["stderr"]},
        "loggers": {
            "pullback": {"level": "INFO"},
            "uvicorn.error": {"level": "WARNING"},
        },
    }


def _bounded(text: str) -> str:
    """Return a text in Unicode without terminal codes, cut in the middle if it is too long."""
    text = without_terminal_codes(text)
    half = MAX_TEXT // 2
    if len(text) > MAX_TEXT:
        text = f"{text[:half]}\n[{len(text) - MAX_TEXT} characters left out]\n{text[-half:]}"
    return text.encode(errors="backslashreplace").decode()
