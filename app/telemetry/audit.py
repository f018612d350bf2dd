"""The audit log: a JSON object on a line for each change of state, and for keys that were refused.

It is a logger, so that every process and thread of the service writes to it. Without its setting it is disabled.
"""

import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from app.telemetry.line_writer import STDERR, LineWriter

STANDARD = "log"
"""The value of the setting for the standard log."""

AUDIT = logging.getLogger("pullback.audit")
_log = logging.getLogger("pullback")


def note(event: str, **fields: Any) -> None:
    """Write an event; the process and the time are added."""
    if AUDIT.isEnabledFor(logging.INFO):
        now = time.time()
        stamp = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now * 1000) % 1000:03d}Z"
        line = {"time": stamp, "event": event, "process": os.getpid(), **fields}
        AUDIT.info("%s", orjson.dumps(line, default=str).decode())


class AuditFile(LineWriter):
    """The lines of a file, which is opened anew once it has been renamed or removed, as by logrotate."""

    notice = b'{"event":"lines_lost","count":%d}\n'

    def __init__(self, path: Path) -> None:
        """Open the file; raises ``OSError`` if that fails."""
        self._path, self._is_failing = path, False
        super().__init__(_opened(path))

    def prepare(self) -> None:
        """Open the file anew if the path has another one, or none. Otherwise lines go on to the old one."""
        own = os.fstat(self.descriptor)
        with suppress(OSError):
            now = os.stat(self._path)
            if (now.st_dev, now.st_ino) == (own.st_dev, own.st_ino):
                return
        try:
            opened = _opened(self._path)
        except OSError as error:
            self._report(error.strerror or str(error))
        else:
            os.dup2(opened, self.descriptor, inheritable=False)
            os.close(opened)

    def note_lost(self, is_lost: bool) -> None:
        """Report in the standard log that lines are lost, once until one can be written again."""
        if is_lost:
            self._report("the disk is full, or the file cannot be written")
        self._is_failing = is_lost

    def _report(self, why: str) -> None:
        if not self._is_failing:
            self._is_failing = True
            _log.error("PULLBACK_AUDIT: lines of the audit log in %s are lost: %s", self._path, why)


class AuditHandler(logging.Handler):
    """The handler of the audit log, which writes to a file, or to the standard log."""

    def __init__(self, target: str) -> None:
        """Open the file; raises ``OSError`` if that fails."""
        super().__init__()
        self.writer = STDERR if target == STANDARD else AuditFile(Path(target))

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        self.writer.write((record.getMessage().encode(),))

    def flush(self) -> None:
        """Wait until the lines are written, for a short time."""
        self.writer.flush()


def lost_lines() -> int:
    """Return how many lines of the audit log this process has lost; those in the standard log count there."""
    writers = [handler.writer for handler in AUDIT.handlers if isinstance(handler, AuditHandler)]
    return sum(writer.dropped for writer in writers if writer is not STDERR)


def need_writable(target: str) -> None:
    """Raise ``OSError`` if there is a file of the audit log, and it cannot be opened."""
    if target not in ("", STANDARD):
        os.close(_opened(Path(target)))


def flush() -> None:
    """Wait until the lines of this process are written, for a short time."""
    for handler in AUDIT.handlers:
        handler.flush()


def _opened(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
