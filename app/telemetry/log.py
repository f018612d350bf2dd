"""The log: lines on stderr, as text for people or as JSON for log collectors."""

import logging
import time
from typing import Any, Literal

import orjson


class TextFormatter(logging.Formatter):
    """``time LEVEL message``, with the time as in the access log; a traceback follows."""

    converter = time.gmtime
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"


class JsonFormatter(TextFormatter):
    """One JSON object per record, with its traceback in a field."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        line: dict[str, Any] = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


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
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "lines"}},
        "root": {"level": "WARNING", "handlers": ["stderr"]},
        "loggers": {"pullback": {"level": "INFO"}, "uvicorn.error": {"level": "WARNING"}},
    }


FORMAT = "%(asctime)s %(levelname)s %(message)s"
