"""The verdict of the last whole check of each registered op, in a file that all workers of a service share."""

import fcntl
import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import orjson

from pullback.gradcheck.verdict import Verdict

log = logging.getLogger("pullback")

FILE_VARIABLE = "PULLBACK_LAST_CHECKS"
"""The variable of the environment that names the file of several workers."""
LARGEST = 1 << 20


class LastCheck(NamedTuple):
    """A verdict, and when the check ended, in seconds since the epoch."""

    verdict: Verdict
    at: float

    @property
    def age_s(self) -> float:
        """The seconds since then."""
        return max(0.0, round(time.time() - self.at, 1))


class LastChecks:
    """One verdict for each op: those of this process, and with a file those of all workers.

    Methods read and write the file, so they must not run on the event loop. A file that cannot be written or read costs
    the verdicts of the other workers, nothing else.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Start with the verdicts of the file."""
        self._path, self._own = path, dict[str, LastCheck]()

    @classmethod
    def shared(cls) -> "LastChecks":
        """Return those of the workers that share a file, or of this process alone."""
        name = os.environ.get(FILE_VARIABLE)
        return cls(Path(name) if name else None)

    def note(self, op: str, verdict: Verdict) -> None:
        """Keep the verdict of a check that has ended."""
        self._own[op] = LastCheck(verdict, time.time())
        if self._path is None:
            return
        try:
            with self._path.open("a+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.seek(0)
                known = self._with_own(_parsed(file.read(LARGEST)))
                file.truncate(0)
                file.write(orjson.dumps({op: list(last) for op, last in known.items()}))
        except OSError as error:
            log.warning("the last verdicts cannot be written: %s", error.strerror)

    def by_op(self) -> Mapping[str, LastCheck]:
        """Return the last verdict of each op that has one."""
        if self._path is None:
            return dict(self._own)
        content = b""
        with suppress(OSError), self._path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            content = file.read(LARGEST)
        return self._with_own(_parsed(content))

    def _with_own(self, known: dict[str, LastCheck]) -> dict[str, LastCheck]:
        newer = {op: own for op, own in self._own.items() if op not in known or known[op].at < own.at}
        return known | newer


def _parsed(content: bytes) -> dict[str, LastCheck]:
    """Return the verdicts in a file; one that was cut off has none."""
    with suppress(orjson.JSONDecodeError, TypeError, AttributeError):
        return {op: LastCheck(*entry) for op, entry in orjson.loads(content).items()}
    return {}
