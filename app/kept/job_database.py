"""The SQLite file of jobs, which all processes of a service on one host share, with its clock and their locks."""

import fcntl
import logging
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from app.errors import Overloaded

log = logging.getLogger("pullback")

# How long a transaction waits for those of other processes, and how often the time is written.
BUSY_S, WRITTEN_S = 10.0, 10.0
FILE, ENDING, RESERVE = "jobs.sqlite3", ".worker", "reserve"
# To free an answer, SQLite writes a page of 4 KiB for each 400 of its pages.
RESERVED = 2 << 20
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_SETTINGS = """
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA journal_size_limit = 16777216;
"""
_SCHEMA = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS store (name TEXT NOT NULL, boot TEXT NOT NULL, zero REAL NOT NULL, seconds REAL NOT NULL);
CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, key TEXT NOT NULL, idempotency TEXT,
    digest BLOB NOT NULL, state TEXT NOT NULL, target TEXT NOT NULL, headers BLOB NOT NULL, size INTEGER NOT NULL,
    runs INTEGER NOT NULL DEFAULT 0, worker TEXT, ends REAL, error TEXT, status INTEGER, answer_headers BLOB,
    done INTEGER, total INTEGER
);
CREATE TABLE IF NOT EXISTS requests (number INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS answers (number INTEGER PRIMARY KEY, body BLOB NOT NULL);
-- The jobs of a key that have not ended, the bytes of all, and the number of its latest turn.
CREATE TABLE IF NOT EXISTS keys (
    key TEXT PRIMARY KEY, jobs INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0,
    turn INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX IF NOT EXISTS by_idempotency ON jobs (key, idempotency) WHERE idempotency IS NOT NULL;
CREATE INDEX IF NOT EXISTS by_state ON jobs (state, key, number);
CREATE INDEX IF NOT EXISTS by_key ON jobs (key, number);
CREATE INDEX IF NOT EXISTS by_worker ON jobs (worker, key) WHERE worker IS NOT NULL;
CREATE INDEX IF NOT EXISTS by_end ON jobs (ends) WHERE ends IS NOT NULL;
CREATE TRIGGER IF NOT EXISTS added AFTER INSERT ON jobs BEGIN
    INSERT INTO keys (key, jobs, bytes) VALUES (new.key, 1, new.size)
    ON CONFLICT DO UPDATE SET jobs = jobs + 1, bytes = bytes + new.size;
END;
CREATE TRIGGER IF NOT EXISTS changed AFTER UPDATE OF state, size ON jobs BEGIN
    UPDATE keys SET bytes = bytes + new.size - old.size,
        jobs = jobs + (new.state IN ('waiting', 'running')) - (old.state IN ('waiting', 'running'))
    WHERE key = new.key;
END;
CREATE TRIGGER IF NOT EXISTS removed AFTER DELETE ON jobs BEGIN
    UPDATE keys SET bytes = bytes - old.size, jobs = jobs - (old.state IN ('waiting', 'running')) WHERE key = old.key;
    DELETE FROM keys WHERE key = old.key AND NOT EXISTS (SELECT 1 FROM jobs WHERE key = old.key);
END;
COMMIT;
"""


class Database:
    """The file of jobs in a folder, as one of the processes that use it.

    ``worker`` is the name of this process there, and ``name`` that of the store. One thread at a time may use it.
    """

    def __init__(self, folder: Path) -> None:
        """Open the file, a new one if there is none; raises ``OSError`` or ``sqlite3.Error`` where this fails."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder, self.worker, self._written = folder, secrets.token_hex(8), 0.0
        # The lock ends with this process; copies of the process do not have it. Others see the file once it is locked.
        new = folder / f"{self.worker}.new"
        self._lock = os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        new.rename(self._file_of(self.worker))
        self._connection = sqlite3.connect(
            folder / FILE, timeout=BUSY_S, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        self._connection.executescript(_SETTINGS)
        self._connection.executescript(_SCHEMA)
        self.name = self._start_clock()
        self.reserve()

    def close(self) -> None:
        """Leave the file."""
        self._connection.close()
        self._file_of(self.worker).unlink(missing_ok=True)
        os.close(self._lock)

    @contextmanager
    def transaction(self, *, writes: bool = True) -> Generator[sqlite3.Connection]:
        """Have a transaction inside this block; raises ``Overloaded`` where the file or the disk does not allow it."""
        db = self._connection
        try:
            db.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            try:
                yield db
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")
        except sqlite3.Error as error:
            log.error("the store of jobs in %s cannot be used: %s", self._folder, error)
            raise Overloaded(f"jobs cannot be kept: {error}", retry_after_s=5) from None

    def free(self, work: Callable[[sqlite3.Connection], object]) -> None:
        """Do ``work``, which frees something, in a transaction, also where the disk is full; raises as that."""
        try:
            with self.transaction() as db:
                work(db)
        except Overloaded:
            reserve = self._folder / RESERVE
            if not reserve.exists():
                raise
            reserve.unlink(missing_ok=True)
            with self.transaction() as db:
                work(db)

    def reserve(self) -> None:
        """Keep a part of the disk for ``free``, if there is room."""
        path = self._folder / RESERVE
        if path.exists():
            return
        try:
            with path.open("xb") as file:
                os.posix_fallocate(file.fileno(), 0, RESERVED)
        except OSError:
            path.unlink(missing_ok=True)

    def now(self) -> float:
        """Return the time of the store: the seconds that its machine has run since it was made."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self._zero

    def save_time(self, db: sqlite3.Connection) -> None:
        """Write the time, from which the clock goes on when the machine starts again."""
        if (now := self.now()) - self._written >= WRITTEN_S:
            db.execute("UPDATE store SET seconds = ?", [now])
            self._written = now

    def version(self) -> int:
        """Return a number that is another one when another process has changed the file."""
        try:
            return self._connection.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error:
            return -1

    def shrink(self) -> None:
        """Give what is free in the file back to the disk."""
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA incremental_vacuum").fetchall()

    def is_dead(self, worker: str) -> bool:
        """Return whether a process that has used the file has ended, and forget it then."""
        path = self._file_of(worker)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        finally:
            os.close(descriptor)
        path.unlink(missing_ok=True)
        return True

    def workers(self) -> list[str]:
        """Return the names of the other processes that use the file, or have used it."""
        names = [path.name.removesuffix(ENDING) for path in self._folder.glob(f"*{ENDING}")]
        return [name for name in names if name != self.worker]

    def _file_of(self, worker: str) -> Path:
        return self._folder / f"{worker}{ENDING}"

    def _start_clock(self) -> str:
        """Start the clock, where the machine has started since; return the name of the store."""
        boot, since_boot = _BOOT.read_text(encoding="ascii").strip(), time.clock_gettime(time.CLOCK_BOOTTIME)
        with self.transaction() as db:
            found = db.execute("SELECT name, boot, zero, seconds FROM store").fetchone()
            if found is None:
                found = secrets.token_hex(4), boot, since_boot, 0.0
                db.execute("INSERT INTO store VALUES (?, ?, ?, ?)", found)
            name, its_boot, self._zero, seconds = found
            if its_boot != boot:
                self._zero = since_boot - seconds
                db.execute("UPDATE store SET boot = ?, zero = ?", [boot, self._zero])
        return name
