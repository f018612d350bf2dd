"""The last whole check of each op, in a file that all processes of a service share."""

import fcntl
import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import orjson
from pydantic import TypeAdapter, ValidationError

from app.graphs.document import PREFIX
from pullback.gradcheck.verdict import Verdict

log = logging.getLogger("pullback")

LARGEST = 1 << 22
# The most posted graphs that have a verdict; the oldest verdicts go.
GRAPHS = 1000


class LastCheck(NamedTuple):
    """A verdict, when the check ended, in seconds since the epoch, its seed and devices, and what computed the op."""

    verdict: Verdict
    at: float
    seed: int
    devices: list[str]
    origin: dict[str, str]

    @property
    def age_s(self) -> float:
        """The seconds since then."""
        return max(0.0, round(time.time() - self.at, 1))


_CHECKS = TypeAdapter(dict[str, LastCheck])


class LastChecks:
    """One check for each op.

    Methods read and write the file, so they must not run on the event loop. A file that cannot be written or read costs
    the checks of other processes, nothing else.
    """

    def __init__(self, path: Path) -> None:
        """Start with the checks in the file; the first new one creates it."""
        self.path, self._own = path, dict[str, LastCheck]()

    def note(self, op: str, check: LastCheck) -> None:
        """Keep a check that has ended."""
        self._own[op] = check
        _drop_graphs(self._own)
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self.path.open("a+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.seek(0)
                known = self._with_own(_parsed(file.read(LARGEST)))
                _drop_graphs(known)
                file.truncate(0)
                file.write(orjson.dumps({op: list(check) for op, check in known.items()}))
        except OSError as error:
            log.warning("the last verdicts cannot be written: %s", error.strerror)

    def by_op(self) -> Mapping[str, LastCheck]:
        """Return the last check of each op that has one."""
        content = b""
        with suppress(OSError), self.path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            content = file.read(LARGEST)
        return self._with_own(_parsed(content))

    def _with_own(self, known: dict[str, LastCheck]) -> dict[str, LastCheck]:
        newer = {op: own for op, own in self._own.items() if op not in known or known[op].at < own.at}
        return known | newer


def _drop_graphs(checks: dict[str, LastCheck]) -> None:
    graphs = [op for op in checks if op.startswith(f"{PREFIX}.")]
    for op in sorted(graphs, key=lambda op: checks[op].at)[: max(0, len(graphs) - GRAPHS)]:
        del checks[op]


def _parsed(content: bytes) -> dict[str, LastCheck]:
    """Return the checks in a file; one that was cut off has none."""
    with suppress(ValidationError):
        return _CHECKS.validate_json(content)
    return {}
