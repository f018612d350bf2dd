"""The quarantine: an op that has crashed a process does not run for a while.

Only a fatal signal is evidence against an op, and only where it is clear which one it was. SIGKILL is none: the system
sends it where memory runs out, and so may an operator, whatever runs.
"""

import faulthandler
import fcntl
import hashlib
import logging
import os
import re
import stat
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from app.runtime import journal
from app.runtime.journal import JOURNAL, Noted
from app.runtime.refused import REFUSED, Refusal
from app.settings import Settings
from ops import Registry

# The event loop, the four threads of the scheduler, and others.
THREADS = 8
JOURNAL_SIZE = THREADS * journal.SIZE
# What is read of a file, and how many files.
MOST_TEXT, MOST_REASON, MOST_FILES = 1 << 18, 1000, 1000
ENDED, CRASHED, NEW = ".process", ".crashed", ".new"
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
log = logging.getLogger("pullback")

EVERY_S = 1.0


# Each process has a file: its journal, then what Python writes as a fatal signal ends it. The process holds a lock of
# the file while it lives. A process that finds one without a lock reads it, and removes it. The ops that must not run
# have a file each, whose time is that of the crash: whoever removes it lets the op run again.
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
            JOURNAL.keep_in(descriptor, THREADS, in_full=False)
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
        for path in self._files(CRASHED):
            name = os.path.basename(path).removesuffix(CRASHED)
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
        return os.path.join(self._path, f"{op}{CRASHED}")

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


def crashes_of(settings: Settings) -> Path | None:
    """Return the folder of a service: another for each address and each list of folders with ops.

    Without a folder of the settings, it is one that the next service at the same port finds, if there is such a port.
    """
    if settings.data is not None:
        folder = settings.data / "crashes"
    elif settings.port and not settings.reload:
        folder = Path(tempfile.gettempdir(), f"pullback-{os.geteuid()}")
    else:
        return None
    service = f"{settings.host} {settings.port} {settings.ops_path}"
    return folder / hashlib.blake2b(service.encode(), digest_size=8).hexdigest()


@contextmanager
def quarantine(path: Path | None, seconds: float, registry: Registry) -> Generator[None]:
    """Inside this block, note what this process computes, and refuse the ops that have crashed it, or another one.

    An op is refused for so many seconds. Without a folder, or where there can be none, nothing is noted. Call it on the
    thread of the event loop.
    """
    if path is None or not seconds:
        yield
        return
    try:
        folder = CrashFolder(path)
        folder.begin()
    except OSError as error:
        log.warning("crashes are not noted in %s (PULLBACK_DATA): %s", path, error.strerror or error)
        yield
        return
    watch, stop = Watch(folder, seconds, registry.pages), threading.Event()
    watch.look(time.time())
    threading.Thread(target=watch.run, args=(stop,), name="quarantine", daemon=True).start()
    try:
        yield
    finally:
        stop.set()
        folder.end()


@dataclass
class Watch:
    """A watch over the folder: the ops that are refused, for ``seconds`` each, and those that one crash may be due to.

    ``pages`` are the files of the ops: an op whose page has changed since its crash is another one.
    """

    folder: CrashFolder
    seconds: float
    pages: Mapping[str, Path]
    suspects: dict[str, float] = field(default_factory=dict[str, float])
    unwritten: dict[str, Refusal] = field(default_factory=dict[str, Refusal])

    def run(self, stop: threading.Event) -> None:
        """Look every second until ``stop`` is set."""
        while not stop.wait(EVERY_S):
            try:
                self.look(time.time())
            except Exception:
                log.exception("the folder of crashes cannot be read")

    def look(self, now: float) -> None:
        """Judge the processes that have ended, and refuse the ops whose files say so, at ``now`` of ``time.time``."""
        for death in self.folder.deaths():
            self._judge(death, now)
        found = {name: refusal for name, refusal in self.unwritten.items() if refusal.until > now}
        for name, (reason, crashed_at) in self.folder.refused().items():
            # A time in the future is that of a clock that has been wrong.
            until = min(crashed_at, now) + self.seconds
            if until <= now or self._has_changed(name, crashed_at):
                self.folder.allow(name)
            else:
                found[name] = Refusal(reason, until)
        for name in REFUSED.keys() - found.keys():
            log.warning("op %s is available again", name)
            del REFUSED[name]
        for name in found.keys() - REFUSED.keys():
            until = time.strftime("%H:%M:%S", time.gmtime(found[name].until))
            cure = f"remove {self.folder.file_of(name)} to lift this"
            log.error("op %s is unavailable until %s UTC: %s; %s", name, until, found[name].reason, cure)
        REFUSED.update(found)

    def _judge(self, death: Death, now: float) -> None:
        """Refuse the op that has crashed a process, if it is clear which one; log what ran otherwise."""
        running = sorted({noted.text for noted in death.noted if noted.is_running and OP.fullmatch(noted.text)})
        if not death.signal:
            log.warning("process %d was killed while it computed %s", death.pid, ", ".join(running) or "nothing")
            return
        suspects = suspects_of(death)
        if len(suspects) > 1:
            # Those that were suspects before, too, if only one was.
            recent = {name for name in suspects if now - self.suspects.get(name, 0.0) < self.seconds}
            self.suspects |= dict.fromkeys(suspects, now)
            suspects = recent if len(recent) == 1 else suspects
        if len(suspects) != 1:
            listed = ", ".join(sorted(suspects)) or "no op"
            log.error("process %d crashed with %s while it computed %s", death.pid, death.signal, listed)
            return
        (name,) = suspects
        reason = (
            f"it crashed process {death.pid} with {death.signal} at {time.strftime('%H:%M:%S', time.gmtime(now))} UTC"
        )
        try:
            self.folder.refuse(name, reason)
        except OSError as error:
            log.error("the crash of op %s is not noted: %s", name, error.strerror)
            self.unwritten[name] = Refusal(reason, now + self.seconds)

    def _has_changed(self, name: str, since: float) -> bool:
        """Return whether the page of an op has changed after its crash."""
        try:
            return name in self.pages and self.pages[name].stat().st_mtime > since
        except OSError:
            return False


def suspects_of(death: Death) -> set[str]:
    """Return the ops that may have crashed a process.

    A kernel runs on the thread that calls it, or on a thread of TensorFlow. The event loop calls only kernels that stay
    on it. The frames of a Python function that TensorFlow calls name the page of its op.
    """
    running = {noted.thread: noted.text for noted in death.noted if noted.is_running and OP.fullmatch(noted.text)}
    if any(noted.thread == death.thread for noted in death.noted):
        return {running[death.thread]} if death.thread in running else set()
    others = {name for thread, name in running.items() if thread != death.noted[0].thread}
    named = {name for name in others if f'/{name}.py"' in death.frames}
    return named if len(named) == 1 else others
