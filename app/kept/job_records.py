"""What the store of jobs keeps, within which bounds, and what it returns."""

import hashlib
import json
import re
import sqlite3
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from app.errors import Gone, NotFound, Overloaded, TooManyRequests
from app.kept import job_turns
from app.telemetry.trace_context import TRACEPARENT

KEY_HEADER, MOST_KEY = "Idempotency-Key", 255
"""The header, and the most characters of its value."""
ENDED = ("done", "failed", "cancelled")
"""The states of a job that has ended."""
NAME = re.compile(r"[0-9a-f]{8}-[0-9a-f]{32}")
# Those that the body of an answer does not depend on.
_NOT_COMPARED = (b"user-agent", b"accept-encoding", TRACEPARENT)

Headers = tuple[tuple[bytes, bytes], ...]


def write_headers(headers: Headers) -> bytes:
    """Return headers as the store keeps them."""
    return json.dumps([[part.decode("latin-1") for part in pair] for pair in headers]).encode()


def read_headers(text: bytes) -> Headers:
    """Return headers that the store has kept."""
    pairs: list[Any] = json.loads(text)
    return tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in pairs)


class JobRequest(NamedTuple):
    """The request of a job, a POST: its target with the query, the headers that matter, and the body."""

    target: str
    headers: Headers
    body: bytes | bytearray | memoryview

    def digest(self) -> bytes:
        """Return what is equal for requests with the same answer."""
        compared = [pair for pair in self.headers if pair[0] not in _NOT_COMPARED]
        digest = hashlib.blake2b(repr((self.target, compared)).encode(), digest_size=32)
        digest.update(self.body)
        return digest.digest()


class Answer(NamedTuple):
    """The answer to the request of a job."""

    status: int
    headers: Headers
    body: bytes


class Claim(NamedTuple):
    """A job that a process runs, for the ``runs``-th time, and the name of its key."""

    id: str
    runs: int
    request: JobRequest
    key: str = ""


class Progress(NamedTuple):
    """How many parts of a job are done: points, or steps of checks."""

    done: int
    total: int


class State(NamedTuple):
    """The state of a job: its place in the line while it waits, why it has failed, and how much of it is done."""

    id: str
    state: str
    position: int | None = None
    error: str | None = None
    progress: Progress | None = None

    @classmethod
    def read(cls, db: sqlite3.Connection, store: str, name: str, key: str) -> Self:
        """Return the state of a job of a key in a store; raises ``NotFound`` for that of another, and ``Gone``."""
        found = db.execute(
            "SELECT state, error, number, done, total FROM jobs WHERE id = ? AND key = ?", [name, key]
        ).fetchone()
        if found is None:
            is_foreign = NAME.fullmatch(name) and not name.startswith(store)
            cure = ": it is that of another server" if is_foreign else ": expected the id of a job of this key"
            raise NotFound(f"unknown job {name!r}{cure}")
        state, error, number, *progress = found
        if state == "expired":
            raise Gone(f"job {name} has ended, and its answer is no longer kept: post it again")
        position = job_turns.position(db, key, number) if state == "waiting" else None
        is_known = state == "running" and None not in progress
        return cls(name, state, position, error, Progress(*progress) if is_known else None)

    @property
    def has_ended(self) -> bool:
        """Whether the job has ended."""
        return self.state in ENDED

    def document(self) -> dict[str, Any]:
        """Return the state as clients get it."""
        progress = None if self.progress is None else self.progress._asdict()
        more = {"position": self.position, "progress": progress, "error": self.error}
        return {"id": self.id, "state": self.state, **{name: x for name, x in more.items() if x is not None}}


@dataclass(frozen=True)
class Bounds:
    """The bounds of a store, in jobs that have not ended, in bytes of requests and answers, and in seconds.

    ``overhead`` is what each job takes besides.
    """

    jobs_of_key: int
    bytes_of_key: int
    bytes: int
    kept_s: float
    overhead: int = 1 << 10
    listed: int = 100

    def need_room(self, db: sqlite3.Connection, key: str, size: int) -> None:
        """Raise ``TooManyRequests`` or ``Overloaded`` where a key may not have one more job, of so many bytes."""
        known, most = db.execute("SELECT jobs FROM keys WHERE key = ?", [key]).fetchone(), self.jobs_of_key
        if known is not None and known[0] >= most:
            raise TooManyRequests(
                f"expected at most {most} jobs{_of(key)} that wait or run (PULLBACK_KEY_JOBS): "
                "wait until some have ended, or cancel some"
            )
        self.need_bytes(db, key, size)

    def need_bytes(self, db: sqlite3.Connection, key: str, size: int) -> None:
        """Raise ``TooManyRequests`` or ``Overloaded`` where the jobs of a key may not have so many more bytes."""
        own, every = db.execute(
            "SELECT coalesce(sum(bytes) FILTER (WHERE key = ?), 0), coalesce(sum(bytes), 0) FROM keys", [key]
        ).fetchone()
        if own + size > self.bytes_of_key:
            raise TooManyRequests(
                f"expected at most {self.bytes_of_key} bytes of jobs and their answers{_of(key)} (PULLBACK_JOBS_MB), "
                f"got {own} and {size} more: DELETE /v1/jobs/{{id}} frees those of a job"
            )
        if every + size > self.bytes:
            raise Overloaded(f"the store of jobs is full: it has {every} of {self.bytes} bytes", retry_after_s=5)


def _of(key: str) -> str:
    return f" with the key {key}" if key else ""
