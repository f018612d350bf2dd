"""What the store of jobs keeps, within which bounds, and what it returns."""

import hashlib
import json
import re
import sqlite3
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from app.errors import Gone, NotFound, Overloaded, TooManyRequests
from app.telemetry.stage_times import TRACEPARENT

# A key that has two places more than another gives one to it: with one more they would change sides for ever.
TOO_MANY = 2
KEY_HEADER, MOST_KEY = "Idempotency-Key", 255
"""The header, and the most characters of its value."""
ENDED = ("done", "failed", "cancelled")
"""The states of a job that has ended."""
NAME = re.compile(r"[0-9a-f]{8}-[0-9a-f]{32}")
# Those that the body of an answer does not depend on.
_NOT_COMPARED = (b"user-agent", b"accept-encoding", TRACEPARENT)

Headers = tuple[tuple[bytes, bytes], ...]


# The key with the fewest places comes first; of several, the one whose last turn is longest ago. So a key has all
# places while no other waits, and its share while others do. The jobs of a key come in the order in which they were
# posted.
class _Key(NamedTuple):
    """A key: its places, its last turn, how many of its jobs wait, and the number of the first that may begin."""

    name: str
    places: int
    turn: int
    waiting: int
    first: int | None


def next_job(db: sqlite3.Connection, most: int) -> int | None:
    """Return the number of the job that begins next, and note the turn of its key.

    ``None``: no job waits, or ``most`` have a place.
    """
    keys = _keys(db)
    if sum(key.places for key in keys) >= most:
        return None
    ready = [(key.places, key.turn, key.first, key.name) for key in keys if key.first is not None]
    if not ready:
        return None
    *_, number, name = min(ready)
    db.execute("UPDATE keys SET turn = (SELECT max(turn) + 1 FROM keys) WHERE key = ?", [name])
    return number


def give_way(db: sqlite3.Connection) -> None:
    """Let a job wait again whose key has too many places while another waits: the latest of the key with the most.

    The job has its place until its process has ended. Until then no other gives way.
    """
    keys = _keys(db)
    fewest = min((key.places for key in keys if key.first is not None), default=None)
    if fewest is None or db.execute("SELECT 1 FROM jobs WHERE worker IS NOT NULL AND state != 'running'").fetchone():
        return
    largest = max(keys, key=lambda key: (key.places, key.turn))
    if largest.places >= fewest + TOO_MANY:
        latest = "SELECT max(number) FROM jobs WHERE state = 'running' AND key = ?"
        db.execute(
            f"UPDATE jobs SET state = 'waiting', runs = runs - 1 WHERE number = ({latest})",
            [largest.name],
        )


def position_of(db: sqlite3.Connection, name: str, number: int) -> int:
    """Return the place of a job that waits in the order in which jobs would begin if no other ended."""
    keys = {key.name: key for key in _keys(db)}
    own = keys.pop(name)
    rank = _rank(db, own, number)
    level = own.places + rank
    before = 0
    for key in keys.values():
        # Of keys with as many places, the one that had more in the beginning has waited for longer.
        is_first = (-key.places, key.turn, key.first or 0) < (-own.places, own.turn, own.first or 0)
        before += max(0, min(key.waiting, level - key.places - (not is_first)))
    return rank + before


def _keys(db: sqlite3.Connection) -> list[_Key]:
    """Return the keys with jobs that wait or run, or have a place."""
    # Without a look at every job that waits: there may be thousands.
    places = dict(db.execute("SELECT key, count(*) FROM jobs WHERE worker IS NOT NULL GROUP BY key").fetchall())
    running = dict(db.execute("SELECT key, count(*) FROM jobs WHERE state = 'running' GROUP BY key").fetchall())
    first = "SELECT number FROM jobs WHERE state = 'waiting' AND key = keys.key AND worker IS NULL"
    rows = db.execute(f"SELECT key, turn, jobs, ({first} ORDER BY number LIMIT 1) FROM keys").fetchall()
    found = [_Key(name, places.get(name, 0), turn, jobs - running.get(name, 0), at) for name, turn, jobs, at in rows]
    return [key for key in found if key.places or key.waiting]


def _rank(db: sqlite3.Connection, key: _Key, number: int) -> int:
    """Return the place of a job among those of its key that wait; it counts from the nearer end."""
    line = "FROM jobs WHERE state = 'waiting' AND key = ?"
    first, last = (db.execute(f"SELECT {end}(number) {line}", [key.name]).fetchone()[0] for end in ("min", "max"))
    if number - first <= last - number:
        return db.execute(f"SELECT count(*) {line} AND number <= ?", [key.name, number]).fetchone()[0]
    return key.waiting - db.execute(f"SELECT count(*) {line} AND number > ?", [key.name, number]).fetchone()[0]


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
        position = position_of(db, key, number) if state == "waiting" else None
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
