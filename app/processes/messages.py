"""The messages between the service and a process of checks or jobs: pickled, on a socket that no other process has."""

import io
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, get_args

from app.errors import Entry, PullbackError
from app.gradcheck.job import Job
from app.processes.sources import Sources
from app.processes.steps import Limits
from app.settings import Settings
from app.telemetry.accounts import Owner
from pullback.findings import Check, Place, Worst

FORK, FORK_FOR_JOBS, KILL = b"fork", b"jobs", b"kill"
"""What the service asks the fork server for: a process of a check or of jobs, or, with the id of one, its end."""


@dataclass(frozen=True)
class Setup:
    """What all processes have in common: the settings, and the files that must not change.

    ``changing`` are those of them that the ops write while they are loaded. The ops are those of ``pages`` if there
    are any, else those of the settings. The service has at most so many ``processes`` that compute.
    """

    settings: Settings
    sources: Sources | None
    changing: frozenset[str] = frozenset()
    pages: tuple[Path, ...] = ()
    processes: int = 1


@dataclass(frozen=True)
class Order:
    """The only message to the process: the check to run. It needs no op but that of ``page``; ``None``: any."""

    setup: Setup
    page: Path | None
    job: Job
    limits: Limits
    owner: Owner


@dataclass(frozen=True)
class Ready:
    """The process has loaded the ops."""


@dataclass(frozen=True)
class Planned:
    """The ``outline`` of the report that the process has planned; positions of steps count for equal ones only."""

    outline: list[str]


@dataclass(frozen=True)
class Began:
    """A step begins; ``step`` is its position."""

    step: int


@dataclass(frozen=True)
class Found:
    """A step has made an entry of the report."""

    step: int
    entry: Check


@dataclass(frozen=True)
class Left:
    """A step has ended, or its time has; it took ``seconds``, and ``cure`` says how to allow it more."""

    step: int
    has_ended: bool
    cure: str
    seconds: float


@dataclass(frozen=True)
class Done:
    """The check or job is over; if an error has ended it, this is it. A job has computed for ``compute_s``."""

    error: PullbackError | None = None
    compute_s: float = 0.0


@dataclass(frozen=True)
class Head:
    """The answer to the request of a job begins."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True)
class Piece:
    """A piece of the body of that answer; ``Done`` follows the last one."""

    data: bytes


@dataclass(frozen=True)
class Progress:
    """So many of the parts of the work of a job are done."""

    done: int
    total: int


@dataclass(frozen=True)
class Dead:
    """The process has ended with this status, as ``os.waitstatus_to_exitcode`` returns it; ``None`` if unknown."""

    status: int | None


Message: TypeAlias = Ready | Planned | Began | Found | Left | Done | Head | Piece | Progress | Dead
"""What comes from the process, or how it has ended."""


def read(data: bytes) -> Message:
    """Return a message from the process; raises an exception for anything else.

    An op may have overwritten the memory of the process. So the service makes no objects but messages, findings and
    errors from what it sends: a pickle of others may run any function.
    """
    message = _Reader(io.BytesIO(data)).load()
    if not isinstance(message, get_args(Message)):
        raise pickle.UnpicklingError(f"expected a message of a process of checks, got {type(message).__name__}")
    return message


class _Reader(pickle.Unpickler):
    """Makes messages, with findings, errors and built-in objects, and no others."""

    def find_class(self, module: str, name: str) -> type:
        """Return a class that may be in a message; raises ``UnpicklingError`` for others."""
        for known in (*get_args(Message), Check, Place, Worst, Entry, *_with_subclasses(PullbackError)):
            if (module, name) == (known.__module__, known.__qualname__):
                return known
        raise pickle.UnpicklingError(f"expected messages and errors, got {module}.{name}")


def _with_subclasses(base: type) -> Iterator[type]:
    yield base
    for child in base.__subclasses__():
        yield from _with_subclasses(child)
