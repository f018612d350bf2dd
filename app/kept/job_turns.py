"""The order in which the jobs of keys begin.

The key with the fewest places comes first; of several, the one whose last turn is longest ago. So a key has all places
while no other waits, and its share while others do. The jobs of a key come in the order in which they were posted.
"""

import sqlite3
from typing import NamedTuple

# A key that has two places more than another gives one to it: with one more they would change sides for ever.
TOO_MANY = 2


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


def position(db: sqlite3.Connection, name: str, number: int) -> int:
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
