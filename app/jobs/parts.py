"""How much of jobs is done, and the parts of their answers, in the file of jobs."""

import sqlite3

from app.errors import wrong
from app.jobs.records import Answer, PartOfAnswer, Progress, read_headers, write_headers


def note(db: sqlite3.Connection, name: str, progress: Progress) -> None:
    """Note how much of a job is done."""
    db.execute("INSERT OR REPLACE INTO progress SELECT number, ?, ? FROM jobs WHERE id = ?", [*progress, name])


def progress(db: sqlite3.Connection, number: int) -> Progress | None:
    """Return how much of a job is done, ``None`` if that is not known."""
    done = db.execute("SELECT done, total FROM progress WHERE number = ?", [number]).fetchone()
    return None if done is None else Progress(*done)


def size(part: PartOfAnswer) -> int:
    """Return the bytes that a part takes."""
    return len(write_headers(part.answer.headers)) + len(part.answer.body)


def sizes(db: sqlite3.Connection, number: int) -> int:
    """Return the bytes that the parts of a job take."""
    total = "SELECT coalesce(sum(length(headers) + length(body)), 0) FROM parts WHERE number = ?"
    return db.execute(total, [number]).fetchone()[0]


def add(db: sqlite3.Connection, number: int, part: PartOfAnswer) -> None:
    """Keep a part of a job, unless an earlier run has."""
    row = [number, part.first, part.points, write_headers(part.answer.headers), part.answer.body]
    if db.execute("INSERT OR IGNORE INTO parts VALUES (?, ?, ?, ?, ?)", row).rowcount:
        db.execute("UPDATE jobs SET size = size + ? WHERE number = ?", [size(part), number])


def at(db: sqlite3.Connection, name: str, point: int) -> PartOfAnswer | None:
    """Return the part of a job at a point if there is one; raises ``Unprocessable`` for a point that it has not."""
    total = db.execute("SELECT total FROM jobs JOIN progress USING (number) WHERE id = ?", [name]).fetchone()
    if total is not None and point >= total[0]:
        message = f"job {name} has no such point"
        raise wrong(("query", "first"), message, expected=f"less than {total[0]}", got=str(point))
    found = db.execute(
        "SELECT first, points, parts.headers, body FROM jobs JOIN parts USING (number)"
        " WHERE id = ? AND first <= ? ORDER BY first DESC LIMIT 1",
        [name, point],
    ).fetchone()
    if found is None or point >= found[0] + found[1]:
        return None
    return PartOfAnswer(found[0], found[1], Answer(200, read_headers(found[2]), found[3]))


def forget(db: sqlite3.Connection, number: int) -> None:
    """Forget the parts of a job."""
    db.execute("DELETE FROM parts WHERE number = ?", [number])


def forget_progress(db: sqlite3.Connection, number: int) -> None:
    """Forget how much of a job is done."""
    db.execute("DELETE FROM progress WHERE number = ?", [number])
