"""The quarantine: an op that has crashed a process does not run for a while.

Only a fatal signal is evidence against an op, and only where it is clear which one it was. SIGKILL is none: the system
sends it where memory runs out, and so may an operator, whatever runs.
"""

import hashlib
import logging
import os
import tempfile
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from app.execution.crash_folder import OP, CrashFolder, Death
from app.runtime.refused import REFUSED, Refusal
from app.settings import Settings
from ops import Registry

log = logging.getLogger("pullback")

EVERY_S = 1.0


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
