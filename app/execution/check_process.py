"""A process of checks, as the service sees it, and the fork server that makes such processes."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Pipe
from pathlib import Path

from app.errors import InternalError
from app.execution.check_messages import BROKEN, Dead, Done, Message, Order, Ready, Setup
from app.runtime import journal

# Checks are not urgent: whoever waits for a gradient comes first.
NICENESS = 10
# The process must not know the files of the service, nor add to its metrics.
HIDDEN = ("PULLBACK_KEYS_FILE", "PULLBACK_TLS_CERT", "PULLBACK_TLS_KEY", "PROMETHEUS_MULTIPROC_DIR")
FORK, KILL = b"fork", b"kill %d"
# Others end processes by these signals, the system too, where memory runs out; ``None``: the status is not known.
NO_CRASH = (-signal.SIGKILL, -signal.SIGTERM, BROKEN, None)
_MEMORY = re.compile(r"^RssAnon:\s+(\d+) kB$", re.MULTILINE)


class ForkServer:
    """The fork server: see ``app.execution.fork_server``."""

    def __init__(self) -> None:
        """Start it. This returns at once; the server takes seconds until it can fork, and requests wait for it."""
        self._control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            # Not ``-m``: the server must find the same modules, wherever the service has found them.
            code = f"import sys; sys.path[:] = {sys.path!r}; from app.execution.fork_server import main"
            environment = {name: value for name, value in os.environ.items() if name not in HIDDEN}
            start = partial(
                subprocess.Popen[bytes],
                [sys.executable, "-c", f"{code}; main({other.fileno()})"],
                stdin=subprocess.DEVNULL,
                stdout=2,
                env=environment,
                pass_fds=(other.fileno(),),
            )
            self._process = _started_at_low_priority(start)

    @property
    def has_ended(self) -> bool:
        """Whether it has died."""
        return self._process.poll() is not None

    def fork(self, connection: int, memory: int, pipe: int) -> None:
        """Ask for a process with these descriptors; see ``app.execution.fork_server.main``. Raises ``OSError``."""
        socket.send_fds(self._control, [FORK], [connection, memory, pipe])

    def kill(self, pid: int) -> None:
        """Kill a process that it has forked, if that has not ended."""
        with suppress(OSError):
            self._control.send(KILL % pid)

    def close(self) -> None:
        """End it and its processes."""
        self._control.close()
        # While it imports it does not know of the socket, and later it ignores this signal.
        self._process.terminate()
        self._process.wait()


def _started_at_low_priority(start: Callable[[], "subprocess.Popen[bytes]"]) -> "subprocess.Popen[bytes]":
    """Start a process on a thread that has a low priority, which the process inherits from it."""
    started = list[subprocess.Popen[bytes]]()

    def run() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        started.append(start())

    thread = threading.Thread(target=run, name="low-priority")
    thread.start()
    thread.join()
    if not started:
        raise InternalError("the process of checks cannot start")
    return started[0]


class CheckProcess:
    """One process of checks.

    It ``has_loaded`` the ops before the first order, and ``is_idle`` when it takes one. ``status`` says what it
    has ended with, "" before; ``has_crashed`` if nobody from outside has ended it.
    """

    def __init__(self, server: ForkServer, setup: Setup) -> None:
        """Ask ``server`` for the process; it is idle when it has loaded the ops. Raises ``OSError``."""
        self._messages, self._loop = asyncio.Queue[Message](), asyncio.get_running_loop()
        self.has_loaded = self.is_idle = self.is_killed = self.has_crashed = False
        self.status = ""
        self._server, self._pid = server, 0
        self._memory = os.memfd_create("pullback-journal")
        os.truncate(self._memory, journal.SIZE)
        self._connection, theirs = Pipe()
        reading, writing = os.pipe()
        try:
            server.fork(theirs.fileno(), self._memory, writing)
        except OSError:
            os.close(reading)
            self._connection.close()
            os.close(self._memory)
            raise
        finally:
            theirs.close()
            os.close(writing)
        # A thread, so that the event loop never waits for a half-written message.
        threading.Thread(target=self._read, args=(reading, setup), name="check-process", daemon=True).start()

    async def order(self, order: Order) -> None:
        """Send a check, which may be large. To a process that has died this does nothing: ``Dead`` follows."""
        journal.clear(self._memory)
        self.is_idle = False
        while not self._messages.empty():  # those that nobody has waited for
            self._messages.get_nowait()
        if self.status:
            self._messages.put_nowait(Dead(None))
        with suppress(OSError):
            await asyncio.to_thread(self._connection.send, order)

    async def receive(self, until: float) -> Message | None:
        """Return the next message, ``None`` if none comes until then, a time of ``time.monotonic``."""
        try:
            async with asyncio.timeout(until - time.monotonic()):
                return await self._messages.get()
        except TimeoutError:
            return None

    def kill(self) -> None:
        """End the process at once, whatever it does."""
        self.is_killed = True
        if self._pid:
            self._server.kill(self._pid)

    def close(self) -> None:
        """End the process, and forget what it has noted."""
        self.kill()
        os.close(self._memory)

    @property
    def evaluation(self) -> str:
        """The evaluation that it makes or has made last, "" before the first of an order."""
        return journal.read(self._memory)

    @property
    def memory_mb(self) -> float:
        """The memory that it uses, in MiB, including what it shares with the fork server; 0 if it has ended."""
        try:
            found = _MEMORY.search(Path(f"/proc/{self._pid}/status").read_text(encoding="ascii"))
        except OSError:
            return 0.0
        return int(found[1]) / 1024 if found else 0.0

    def _read(self, pipe: int, setup: Setup) -> None:
        """Pass on the messages of the process until it has ended, and then how it has."""
        status = None
        with os.fdopen(pipe, encoding="ascii") as told, self._connection as connection:
            if pid := told.readline():
                self._pid = int(pid)
                if self.is_killed:
                    self.kill()
                with suppress(OSError, EOFError):
                    connection.send(setup)
                    while True:
                        self._pass_on(connection.recv())
                text = told.readline()
                status = int(text) if text else None
        self._pass_on(Dead(status))

    def _pass_on(self, message: Message) -> None:
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._take, message)

    def _take(self, message: Message) -> None:
        match message:
            case Ready():
                self.has_loaded = self.is_idle = True
            case Done(_, is_idle):
                self.is_idle = is_idle
            case Dead(status):
                self.is_idle = False
                self.status, self.has_crashed = ending_of(status), status not in NO_CRASH
            case _:
                pass
        self._messages.put_nowait(message)


def ending_of(status: int | None) -> str:
    """Return what a process has ended with, from its exit code as ``os.waitstatus_to_exitcode`` returns it."""
    if status is None:
        return "an unknown status"
    if status >= 0:
        return f"status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
