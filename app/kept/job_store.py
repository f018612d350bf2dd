"""The store of jobs. Each method is one transaction, so that the process may end at any time.

The methods block as long as the disk does: call them in a thread, one at a time. They raise ``Overloaded`` where the
store cannot be used.
"""

import json
import secrets
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from app.errors import CannotStart, Overloaded, wrong
from app.kept import job_records
from app.kept.job_database import Database
from app.kept.job_records import (
    ENDED,
    KEY_HEADER,
    Answer,
    Bounds,
    Claim,
    JobRequest,
    Progress,
    State,
    read_headers,
    write_headers,
)

# How often a job may run, if its process ends.
MOST_RUNS = 2
_OF_ANSWER = "DELETE FROM answers WHERE number = ?"
_OF_REQUEST = "DELETE FROM requests WHERE number = ?"


class JobStore:
    """The jobs of a folder.

    ``name`` is that of the store: the ids of its jobs begin with it.
    """

    def __init__(self, path: Path, bounds: Bounds) -> None:
        """Open the store, a new one if there is none; raises ``CannotStart`` if it cannot be used."""
        self.path, self._bounds = path, bounds
        try:
            self._database = Database(path)
        except (OSError, sqlite3.Error, Overloaded) as error:
            raise CannotStart(f"the store of jobs cannot be used ({path}, of PULLBACK_DATA): {error}") from error
        self.name = self._database.name

    def close(self) -> None:
        """Let the jobs that this process runs wait again, and leave the store."""
        try:
            with self._database.transaction() as db:
                db.execute(
                    "UPDATE jobs SET state = 'waiting', worker = NULL, runs = runs - 1"
                    " WHERE state = 'running' AND worker = ?",
                    [self._database.worker],
                )
                db.execute("UPDATE jobs SET worker = NULL WHERE worker = ?", [self._database.worker])
        finally:
            self._database.close()

    def add(self, key: str, request: JobRequest, idempotency: str = "") -> State:
        """Keep a new job of a key, or find the one with the same idempotency key; return its state.

        Raises ``Unprocessable`` if that one has another request, ``TooManyRequests`` where the jobs of the key are too
        many or too large, and ``Overloaded`` where the store or the disk is full.
        """
        digest, headers = request.digest(), write_headers(request.headers)
        size = len(request.body) + len(request.target) + len(headers) + self._bounds.overhead
        with self._database.transaction() as db:
            known = db.execute("SELECT id, digest FROM jobs WHERE key = ? AND idempotency = ?", [key, idempotency])
            if idempotency and (found := known.fetchone()) is not None:
                return self._same(db, key, found, digest)
            self._bounds.need_room(db, key, size)
            name = f"{self.name}-{secrets.token_hex(16)}"
            number = db.execute(
                "INSERT INTO jobs (id, key, idempotency, digest, state, target, headers, size)"
                " VALUES (?, ?, ?, ?, 'waiting', ?, ?, ?)",
                [name, key, idempotency or None, digest, request.target, headers, size],
            ).lastrowid
            db.execute("INSERT INTO requests VALUES (?, ?)", [number, request.body])
            return self._state(db, name, key)

    def states(self, names: Sequence[str], key: str) -> list[State]:
        """Return the states of jobs of a key; raises ``NotFound`` for those of another, and ``Gone``."""
        with self._database.transaction(writes=False) as db:
            return [self._state(db, name, key) for name in names]

    def latest(self, key: str) -> list[State]:
        """Return the states of the latest jobs of a key, the newest first."""
        with self._database.transaction(writes=False) as db:
            names = db.execute(
                "SELECT id FROM jobs WHERE key = ? AND state != 'expired' ORDER BY number DESC LIMIT ?",
                [key, self._bounds.listed],
            ).fetchall()
            return [self._state(db, name, key) for (name,) in names]

    def answer(self, name: str, key: str) -> tuple[State, Answer | None]:
        """Return the state of a job of a key, and its answer if it has one; raises as ``states``."""
        with self._database.transaction(writes=False) as db:
            state = self._state(db, name, key)
            found = db.execute(
                "SELECT status, answer_headers, body FROM jobs JOIN answers USING (number) WHERE id = ?", [name]
            ).fetchone()
        return state, None if found is None else Answer(found[0], read_headers(found[1]), found[2])

    def cancel(self, name: str, key: str) -> None:
        """Cancel a job of a key that has not ended, and forget the answer of one that has; raises as ``states``.

        A job that runs has its place until its process has ended: see ``leave``.
        """

        def work(db: sqlite3.Connection) -> None:
            state = self._state(db, name, key)
            if state.state not in ENDED:
                self._end(db, name, "cancelled")
            elif state.state != "cancelled":
                self._expire(db, name)

        self._database.free(work)

    def leave(self, claim: Claim) -> None:
        """Give back the place of a job that was cancelled or gave way, and whose process has ended."""
        forget = "UPDATE jobs SET worker = NULL WHERE id = ? AND worker = ? AND state != 'running'"
        self._database.free(lambda db: db.execute(forget, [claim.id, self._database.worker]))

    def claim(self, most: int) -> Claim | None:
        """Return a job that waits, which this process runs from now on, unless ``most`` of all processes run.

        The order is that of ``job_turns``. Where no place is free, a job of a key that has too many gives way.
        """
        with self._database.transaction() as db:
            number = job_records.next_job(db, most)
            if number is None:
                job_records.give_way(db)
                return None
            name, runs, target, headers, key = db.execute(
                "UPDATE jobs SET state = 'running', worker = ?, runs = runs + 1, done = NULL, total = NULL"
                " WHERE number = ? RETURNING id, runs, target, headers, key",
                [self._database.worker, number],
            ).fetchone()
            body = db.execute("SELECT body FROM requests WHERE number = ?", [number]).fetchone()[0]
            return Claim(name, runs, JobRequest(target, read_headers(headers), body), key)

    def finish(self, claim: Claim, answer: Answer, error: str = "") -> None:
        """Keep the answer of a job that this process runs; a job with an ``error`` has failed.

        Raises ``TooManyRequests`` or ``Overloaded`` where there is no room for the answer.
        """
        with self._database.transaction() as db:
            if not self._runs(db, claim):
                return
            number, key, size = db.execute("SELECT number, key, size FROM jobs WHERE id = ?", [claim.id]).fetchone()
            headers = write_headers(answer.headers)
            new = len(answer.body) + len(headers)
            self._bounds.need_bytes(db, key, new + self._bounds.overhead - size)
            db.execute("INSERT INTO answers VALUES (?, ?)", [number, answer.body])
            db.execute(
                "UPDATE jobs SET status = ?, answer_headers = ? WHERE number = ?", [answer.status, headers, number]
            )
            self._end(db, claim.id, "failed" if error else "done", error, new)

    def note(self, claim: Claim, progress: Progress) -> None:
        """Note how much is done of a job that this process runs."""
        with self._database.transaction() as db:
            if self._runs(db, claim):
                db.execute("UPDATE jobs SET done = ?, total = ? WHERE id = ?", [*progress, claim.id])

    def fail(self, claim: Claim, error: str) -> None:
        """Note why a job that this process runs has failed without an answer."""
        with self._database.transaction() as db:
            if self._runs(db, claim):
                self._end(db, claim.id, "failed", error)

    def give_back(self, claim: Claim, why: str) -> None:
        """Let a job wait again whose process has ended, or fail if it has run ``MOST_RUNS`` times."""
        with self._database.transaction() as db:
            if self._runs(db, claim):
                self._again(db, claim.id, why)

    def put_back(self, claim: Claim) -> None:
        """Let a job wait again that could not begin."""
        with self._database.transaction() as db:
            if self._runs(db, claim):
                db.execute("UPDATE jobs SET state = 'waiting', worker = NULL, runs = runs - 1 WHERE id = ?", [claim.id])

    def ended(self, names: Sequence[str]) -> list[str]:
        """Return those of these jobs that have ended, or that there are not any more."""
        with self._database.transaction(writes=False) as db:
            found = db.execute(
                "SELECT id FROM jobs WHERE id IN (SELECT value FROM json_each(?)) AND state IN ('waiting', 'running')",
                [json.dumps(names)],
            ).fetchall()
        unfinished = {name for (name,) in found}
        return [name for name in names if name not in unfinished]

    def running(self, claims: Sequence[Claim]) -> list[bool]:
        """Return for each of these jobs whether this process is still to run it."""
        with self._database.transaction(writes=False) as db:
            return [self._runs(db, claim) for claim in claims]

    def version(self) -> int:
        """Return a number that is another one when another process has changed the store."""
        return self._database.version()

    def sweep(self) -> None:
        """Take back the jobs of processes that have ended, forget answers whose time is over, and later their ids."""
        database, dead = self._database, [name for name in self._database.workers() if self._database.is_dead(name)]
        with database.transaction() as db:
            database.save_time(db)
            places = db.execute("SELECT id, worker, state FROM jobs WHERE worker IS NOT NULL").fetchall()
            for name, worker, state in places:
                if worker in dead or (worker != database.worker and database.is_dead(worker)):
                    if state == "running":
                        self._again(db, name, "the service ended")
                    else:
                        db.execute("UPDATE jobs SET worker = NULL WHERE id = ?", [name])
            now = database.now()
            over = db.execute("SELECT id FROM jobs WHERE ends <= ? AND state != 'expired'", [now]).fetchall()
            for (name,) in over:
                self._expire(db, name)
            db.execute("DELETE FROM jobs WHERE state = 'expired' AND ends <= ?", [now - self._bounds.kept_s])
        database.shrink()
        database.reserve()

    def counts(self) -> dict[str, int]:
        """Return how many jobs there are in each state, and the ``bytes`` that they take."""
        with self._database.transaction(writes=False) as db:
            states = dict(db.execute("SELECT state, count(*) FROM jobs GROUP BY state").fetchall())
            return states | {"bytes": db.execute("SELECT coalesce(sum(bytes), 0) FROM keys").fetchone()[0]}

    def _same(self, db: sqlite3.Connection, key: str, found: tuple[str, bytes], digest: bytes) -> State:
        name, known = found
        if known != digest:
            raise wrong(
                ("header", KEY_HEADER),
                "this key is that of another request",
                expected=f"the request of job {name}, or a new key",
                got="another target, Content-Type, Accept or body",
            )
        return self._state(db, name, key)

    def _state(self, db: sqlite3.Connection, name: str, key: str) -> State:
        return State.read(db, self.name, name, key)

    def _runs(self, db: sqlite3.Connection, claim: Claim) -> bool:
        found = db.execute(
            "SELECT 1 FROM jobs WHERE id = ? AND state = 'running' AND worker = ? AND runs = ?",
            [claim.id, self._database.worker, claim.runs],
        )
        return found.fetchone() is not None

    def _again(self, db: sqlite3.Connection, name: str, why: str) -> None:
        if db.execute("SELECT runs FROM jobs WHERE id = ?", [name]).fetchone()[0] < MOST_RUNS:
            db.execute("UPDATE jobs SET state = 'waiting', worker = NULL WHERE id = ?", [name])
        else:
            self._end(db, name, "failed", f"{why}, in each of its {MOST_RUNS} runs")

    def _end(self, db: sqlite3.Connection, name: str, state: str, error: str = "", size: int = 0) -> None:
        """Note the end of a job, and free its request."""
        [number] = db.execute(
            "UPDATE jobs SET state = ?, worker = CASE ? WHEN 'cancelled' THEN worker END, error = ?, ends = ?, size = ?"
            " WHERE id = ? RETURNING number",
            [
                state,
                state,
                error or None,
                self._database.now() + self._bounds.kept_s,
                size + self._bounds.overhead,
                name,
            ],
        ).fetchone()
        db.execute(_OF_REQUEST, [number])

    def _expire(self, db: sqlite3.Connection, name: str) -> None:
        """Forget all of a job but its id."""
        [number] = db.execute(
            "UPDATE jobs SET state = 'expired', idempotency = NULL, ends = ?, size = ? WHERE id = ? RETURNING number",
            [self._database.now(), self._bounds.overhead, name],
        ).fetchone()
        db.execute(_OF_ANSWER, [number])
