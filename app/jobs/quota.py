"""The quota of jobs: how many, and how many bytes in their file, each key may have, and all keys together."""

import sqlite3

from app.errors import Overloaded, TooManyRequests
from app.jobs.records import Bounds


def need_room(db: sqlite3.Connection, bounds: Bounds, key: str, size: int) -> None:
    """Raise ``TooManyRequests`` or ``Overloaded`` where a key may not have one more job, of so many bytes."""
    known, most = db.execute("SELECT jobs FROM keys WHERE key = ?", [key]).fetchone(), bounds.jobs_of_key
    if known is not None and known[0] >= most:
        raise TooManyRequests(
            f"expected at most {most} jobs{_of(key)} that wait or run (PULLBACK_KEY_JOBS): "
            "wait until some have ended, or cancel some"
        )
    need_bytes(db, bounds, key, size)


def need_bytes(db: sqlite3.Connection, bounds: Bounds, key: str, size: int) -> None:
    """Raise ``TooManyRequests`` or ``Overloaded`` where the jobs of a key may not have so many more bytes."""
    own, every = db.execute(
        "SELECT coalesce(sum(bytes) FILTER (WHERE key = ?), 0), coalesce(sum(bytes), 0) FROM keys", [key]
    ).fetchone()
    if own + size > bounds.bytes_of_key:
        raise TooManyRequests(
            f"expected at most {bounds.bytes_of_key} bytes of jobs and their answers{_of(key)} (PULLBACK_JOBS_MB), "
            f"got {own} and {size} more: DELETE /v1/jobs/{{id}} frees those of a job"
        )
    if every + size > bounds.bytes:
        raise Overloaded(f"the store of jobs is full: it has {every} of {bounds.bytes} bytes", retry_after_s=5)


def _of(key: str) -> str:
    return f" with the key {key}" if key else ""
