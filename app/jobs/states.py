"""The states of jobs in the file of jobs."""

import sqlite3

from app.errors import Gone, NotFound
from app.jobs import turns
from app.jobs.records import NAME, Progress, State


def state_of(db: sqlite3.Connection, store: str, name: str, key: str) -> State:
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
        raise Gone(f"job {name} has ended, and its answer is no longer kept (PULLBACK_JOBS_KEEP_S): post it again")
    position = turns.position(db, key, number) if state == "waiting" else None
    is_known = state == "running" and None not in progress
    return State(name, state, position, error, Progress(*progress) if is_known else None)
