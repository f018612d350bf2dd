"""The folder where processes of a service note what they compute, so that another finds which op ended one of them.

Each process has a file: its journal, then what Python writes as a fatal signal ends it. The process holds a lock of
the file while it lives. A process that finds one without a lock reads it, and removes it. The ops that must not run
have a file each, whose time is that of the crash: whoever removes it lets the op run again.
"""

import faulthandler
import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from app.runtime import journal
from app.runtime.journal import JOURNAL, Noted

# The event loop, the four threads of the scheduler, and others.
THREADS = 8
JOURNAL_SIZE = THREADS * journal.SIZE
# What is read of a file, and how many files.
MOST_TEXT, MOST_REASON, MOST_FILES = 1 << 18, 1000, 1000
ENDED, REFUSED, NEW = ".process", ".crashed", ".new"
SIGNALS = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Floating point exception": "SIGFPE",
    "Floating-point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}
_FATAL = re.compile(r"Fatal Python error: ([^\n]*)\n")
_CURRENT = re.compile(r"^Current thread 0x([0-9a-f]+)[^\n]*\n((?:  [^\n]*\n)*)", re.MULTILINE)
OP = re.compile(r"[a-z][a-z0-9_]*(\.[0-9a-f]+)?")


class Death(NamedTuple):
    """A process that has ended by itself: its id, the fatal signal, "" if there was none, and what its threads ran.

    ``thread`` is the one that got the signal, 0 if it is none of Python, and ``frames`` are its frames. The event loop
    is the first thread of ``noted``.
    """

    pid: int
    signal: str
    thread: int
    frames: str
    noted: Sequence[Noted]


class CrashFolder:
    """The folder of a service, which only its user may read or write."""

    def __init__(self, path: Path) -> None:
        """Create the folder and the one around it; raises ``OSError`` where others may write."""
        self._path, self._own = path, ""
        path.parent.parent.mkdir(0o700, parents=True, exist_ok=True)
        for folder in (path.parent, path):
            with suppress(FileExistsError):
                folder.mkdir(0o700)
            status = folder.lstat()
            is_ours = status.st_uid == os.geteuid() or (folder != path and not status.st_uid)
            is_open = status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX
            if not stat.S_ISDIR(status.st_mode) or not is_ours or is_open:
                raise PermissionError(0, f"{folder} is not a folder that only user {os.geteuid()} may write")

    def begin(self) -> None:
        """Keep the journal of this process, from the thread of the event loop, until ``end``. Raises ``OSError``."""
        descriptor, name = tempfile.mkstemp(NEW, f"{os.getpid()}-", self._path)
        try:
            # A disk that is full must be so now: later, a write into the memory would end the process.
            os.posix_fallocate(descriptor, 0, JOURNAL_SIZE)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            own = f"{name.removesuffix(NEW)}{ENDED}"
            os.rename(name, own)
            fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_APPEND)
            JOURNAL.keep_in(descriptor, journal.op_name, THREADS)
        except OSError:
            os.close(descriptor)
            with suppress(OSError):
                os.unlink(name)
            raise
        JOURNAL.take()
        faulthandler.enable(descriptor)
        self._own, self._descriptor = own, descriptor
        os.register_at_fork(after_in_child=self._leave)

    def end(self) -> None:
        """Keep nothing any more, and remove the folder if it is empty."""
        if self._own:
            self._leave()
            with suppress(OSError):
                os.unlink(self._own)
            os.close(self._descriptor)
            self._own = ""
        with suppress(OSError):
            self._path.rmdir()

    def _leave(self) -> None:
        """Write no more into the file: a copy of this process is another one."""
        faulthandler.disable()
        JOURNAL.leave()

    def deaths(self) -> list[Death]:
        """Return the processes that have ended without ``end`` since the last call in any process."""
        return [death for path in self._files(ENDED) if (death := self._dead(path))]

    def refused(self) -> dict[str, tuple[str, float]]:
        """Return the reason for each op that must not run, and the time of the crash."""
        found = dict[str, tuple[str, float]]()
        for path in self._files(REFUSED):
            name = os.path.basename(path).removesuffix(REFUSED)
            with suppress(OSError), closing(_Regular(path, os.O_RDONLY)) as file:
                text = file.read(MOST_REASON).decode(errors="replace")
                if OP.fullmatch(name):
                    found[name] = "".join(c for c in text if c.isprintable()), file.changed_at
        return found

    def refuse(self, op: str, reason: str) -> None:
        """Refuse an op from now on. Raises ``OSError``."""
        descriptor, name = tempfile.mkstemp(NEW, "refused-", self._path)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(reason)
            os.rename(name, self.file_of(op))
        except OSError:
            with suppress(OSError):
                os.unlink(name)
            raise

    def allow(self, op: str) -> None:
        """Let an op run again."""
        with suppress(OSError):
            os.unlink(self.file_of(op))

    def file_of(self, op: str) -> str:
        """Return the file of a refused op."""
        return os.path.join(self._path, f"{op}{REFUSED}")

    def _files(self, ending: str) -> Iterator[str]:
        try:
            with os.scandir(self._path) as entries:
                for _, entry in zip(range(MOST_FILES), entries, strict=False):
                    # To close any copy of the own file would release its lock.
                    if entry.name.endswith(ending) and entry.path != self._own:
                        yield entry.path
        except OSError:
            return

    def _dead(self, path: str) -> Death | None:
        """Read and remove the file of a process that has ended; ``None`` if it lives, or another has read it."""
        try:
            with closing(_Regular(path, os.O_RDWR)) as file:
                fcntl.lockf(file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(path)
                return death_of(os.path.basename(path), file.read(JOURNAL_SIZE + MOST_TEXT))
        except OSError:
            return None


class _Regular:
    """A regular file of this user, opened without waiting; raises ``OSError`` for anything else."""

    def __init__(self, path: str, flags: int) -> None:
        self.descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        status = os.fstat(self.descriptor)
        self.changed_at = status.st_mtime
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            self.close()
            raise PermissionError(path)

    def read(self, most: int) -> bytes:
        return os.pread(self.descriptor, most, 0)

    def close(self) -> None:
        os.close(self.descriptor)


def death_of(name: str, content: bytes) -> Death:
    """Return what the file of a process says, whatever it contains."""
    pid = name.partition("-")[0]
    memories = content[:JOURNAL_SIZE].ljust(JOURNAL_SIZE, b"\0")
    threads = [journal.noted(memories[i : i + journal.SIZE]) for i in range(0, JOURNAL_SIZE, journal.SIZE)]
    text = content[JOURNAL_SIZE:].decode(errors="replace")
    fatal, current = _FATAL.search(text), _CURRENT.search(text)
    return Death(
        int(pid) if pid.isdecimal() else 0,
        SIGNALS.get(fatal[1], "") if fatal else "",
        int(current[1], 16) if current else 0,
        current[2] if current else "",
        [thread for thread in threads if thread.thread],
    )
