"""A process that runs one check, or jobs, as the service sees it, and the fork server that makes such processes."""

import asyncio
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Self, TextIO

from app.processes.forks import BROKEN, Fork, ending_of
from app.processes.messages import FORK, KILL, Dead, Message, read
from app.runtime import journal

log = logging.getLogger("pullback")

# Checks are not urgent: requests come first.
NICENESS = 10
# The process must not know the files of the service, nor add to its metrics.
HIDDEN = ("PULLBACK_KEYS_FILE", "PULLBACK_TLS_CERT", "PULLBACK_TLS_KEY", "PROMETHEUS_MULTIPROC_DIR")
# Signals that others send, such as the system when memory runs out; ``None``: the status is not known.
NO_CRASH = (-signal.SIGKILL, -signal.SIGTERM, BROKEN, None)
# How long a process may take to load the ops, with TensorFlow before them, on a busy machine.
LOAD_S = 180.0
# How often the memory of a process is measured, and how long the fork server may take to end.
MEASURE_S, CLOSE_S = 0.25, 1.0
# How often who waits for a message looks whether the fork server is stopped.
LOOK_S = 1.0
# The state of a process after SIGSTOP, in ``/proc``.
STOPPED = "T"
# An op that overwrites the memory of its process may garble the length of a message.
MAX_MESSAGE = 1 << 26
_MEMORY = re.compile(r"^RssAnon:\s+(\d+) kB$", re.MULTILINE)
_STOPPED = re.compile(rf"^State:\s+{STOPPED}\b", re.MULTILINE)


class ForkServer:
    """The fork server: see ``app.children.fork_server``, whose ``start_as_copy`` starts it faster."""

    def __init__(self, process: subprocess.Popen[bytes] | Fork, control: socket.socket) -> None:
        """Take a process and our end of its socket."""
        self._process, self._control = process, control
        # Neither end may block the event loop: a server that does not read is stuck.
        control.setblocking(False)

    @classmethod
    def spawned(cls) -> Self:
        """Start it in a new interpreter. This returns at once; the server takes seconds until it can fork.

        Raises ``OSError`` if it cannot start.
        """
        # Not ``-m``: the server must find the same modules, wherever the service has found them.
        code = f"import os, sys; os.nice({NICENESS}); sys.path[:] = {sys.path!r}"
        code = f"{code}; from app.children.fork_server import main"
        environment = {name: value for name, value in os.environ.items() if name not in HIDDEN}
        control, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other, ExitStack() as unless_started:
            unless_started.callback(control.close)
            process = subprocess.Popen(
                [sys.executable, "-c", f"{code}; main({other.fileno()})"],
                stdin=subprocess.DEVNULL,
                stdout=2,
                env=environment,
                pass_fds=(other.fileno(),),
                # The service says when to stop, also where a signal goes to its whole group, as Ctrl-C does.
                start_new_session=True,
            )
            unless_started.pop_all()
        return cls(process, control)

    @property
    def has_ended(self) -> bool:
        """Whether it has died, or an op has stopped it."""
        if self._process.poll() is not None:
            return True
        try:
            status = Path(f"/proc/{self._process.pid}/stat").read_text("ascii")
        except (FileNotFoundError, ProcessLookupError):
            return True  # another thread has waited for it meanwhile
        return status.rpartition(")")[2].split()[0] == STOPPED

    def fork(self, kind: bytes, connection: int, memory: int, pipe: int) -> None:
        """Ask for a process with these descriptors; see ``app.children.fork_server.main``. Raises ``OSError``."""
        socket.send_fds(self._control, [kind], [connection, memory, pipe])

    def kill(self, pid: int) -> None:
        """Kill a process that it has forked, if that has not ended, and the processes of that one."""
        try:
            self._control.send(b"%b %d" % (KILL, pid))
        except BlockingIOError:
            self.end()
        except OSError:
            pass  # it has ended, and its processes with it

    def end(self) -> None:
        """End it at once, although it may be stuck, and its processes."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End it and its processes, and wait until it has ended."""
        self._control.close()
        # While it imports it does not know of the socket, and later it ignores this signal.
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_S)
        self._process.kill()
        self._process.wait()


class CheckProcess:
    """A process that runs one check, or jobs.

    ``status`` says what it has ended with, "" before; ``has_crashed`` if it has ended by itself, ``has_outgrown`` if
    its memory was too much, ``was_stopped`` if it was ended because it was stopped. It should have loaded the ops at
    ``load_until``, a time of ``time.monotonic``.
    """

    def __init__(self, server: ForkServer, memory_mb: int, kind: bytes = FORK) -> None:
        """Ask ``server`` for the process, of this ``kind``.

        It is ended when it uses more than ``memory_mb``. Raises ``OSError``, and ``RuntimeError`` if there can be no
        thread.
        """
        self._messages, self._loop = asyncio.Queue[Message](), asyncio.get_running_loop()
        self._is_killed = self.has_crashed = self.has_outgrown = self.was_stopped = False
        self.status = ""
        self.load_until = time.monotonic() + LOAD_S
        self._server, self._pid, self._limit_mb = server, 0, memory_mb
        self._sending = threading.Lock()
        with ExitStack() as theirs, ExitStack() as unless_started:
            self._memory = os.memfd_create("pullback-journal")
            unless_started.callback(self._forget)
            os.truncate(self._memory, journal.SIZE)
            self._connection, other = Pipe()
            theirs.enter_context(other)
            unless_started.enter_context(self._connection)
            reading, writing = os.pipe()
            theirs.callback(os.close, writing)
            pipe = unless_started.enter_context(os.fdopen(reading, encoding="ascii"))
            server.fork(kind, other.fileno(), self._memory, writing)
            # A thread, so that the event loop never waits for a half-written message.
            threading.Thread(target=self._read, args=(pipe,), name="check-process", daemon=True).start()
            unless_started.pop_all()

    @property
    def has_begun(self) -> bool:
        """Whether the fork server has forked it."""
        return self._pid > 0

    @property
    def has_lost_server(self) -> bool:
        """Whether the fork server has died or is stopped, so that another one must take its place."""
        return self._server.has_ended

    async def order(self, order: object, until: float) -> None:
        """Send what to do, which may be large, until its time is over. If the process has died, ``Dead`` follows."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(until - time.monotonic()):
                await asyncio.to_thread(self._send, order)

    async def receive(self, until: float) -> Message | None:
        """Return the next message, ``None`` if none comes until then, a time of ``time.monotonic``.

        If the fork server is stopped meanwhile, it is ended, and the process with it: ``Dead`` follows.
        """
        while True:
            try:
                async with asyncio.timeout(min(LOOK_S, until - time.monotonic())):
                    return await self._messages.get()
            except TimeoutError:
                if time.monotonic() >= until:
                    return None
                if self.has_lost_server:
                    self._server.end()

    def kill(self) -> None:
        """End the process at once, whatever it does; ``receive`` returns ``Dead`` before it has ended."""
        self._is_killed = True
        self._end()
        self._messages.put_nowait(Dead(None))

    async def ended(self) -> None:
        """Wait until the process, which ``kill`` ends, has ended."""
        until = time.monotonic() + LOAD_S if self.has_begun else self.load_until
        while not self.status and await self.receive(until) is not None:
            pass

    def close(self) -> None:
        """End the process, with a fork server that has not forked it in time; forget what it has noted."""
        self.kill()
        if not self.has_begun and time.monotonic() >= self.load_until:
            self._server.end()
        self._forget()

    def _forget(self) -> None:
        if self._memory >= 0:
            os.close(self._memory)
        self._memory = -1

    @property
    def evaluation(self) -> str:
        """The evaluation that it makes or has made last, "" before the first of a step."""
        return journal.read(self._memory)

    @property
    def memory_mb(self) -> float:
        """The memory that it uses, in MiB, including what it shares with the fork server; 0 if it has ended."""
        found = _MEMORY.search(self._state)
        return int(found[1]) / 1024 if found else 0.0

    @property
    def _state(self) -> str:
        """What the system says of it; "" if it has ended."""
        try:
            return "" if self.status else Path(f"/proc/{self._pid}/status").read_text("ascii")
        except OSError:
            return ""

    def _send(self, order: object) -> None:
        with self._sending:
            if not self._connection.closed:
                self._connection.send(order)

    def _end(self) -> None:
        """Kill the process, once its id is known; another may have this id when it has ended."""
        if self._pid and not self.status:
            self._server.kill(self._pid)

    def _read(self, pipe: TextIO) -> None:
        """Pass on the messages of the process until it has ended, and then how it has."""
        status = None
        try:
            if pid := pipe.readline():
                self._pid = int(pid)
                if self._is_killed:
                    self._end()
                with suppress(OSError, EOFError):
                    self._receive(pipe)
        except Exception:
            log.exception("a process of checks sent what cannot be read: it is ended")
        finally:
            # It may live: its op may have closed the connection.
            self._end()
            with suppress(ValueError):
                status = int(pipe.readline())
            if self._pid and status is None:
                self._server.end()  # it ends already, or it would have sent the status; a new one must start
                with suppress(ProcessLookupError):  # the process has ended, and has left none
                    os.killpg(self._pid, signal.SIGKILL)
            pipe.close()
            _shut(self._connection)
            with self._sending:
                self._connection.close()
            self._pass_on(Dead(status))

    def _receive(self, pipe: TextIO) -> None:
        """Pass on the messages; raise ``EOFError`` when the process has ended.

        It is ended when it uses too much memory, and when it is stopped, because it would never send anything.
        """
        measured = -MEASURE_S
        while True:
            ready = wait([self._connection, pipe.fileno()], MEASURE_S)
            if pipe.fileno() in ready:
                # It has ended, but a process that its op has started may keep the connection open.
                _shut(self._connection)
            if ready:
                self._pass_on(read(self._connection.recv_bytes(MAX_MESSAGE)))
            if time.monotonic() > measured + MEASURE_S:
                measured = time.monotonic()
                self.has_outgrown |= self.memory_mb > self._limit_mb
                self.was_stopped |= bool(_STOPPED.search(self._state))
                if self.has_outgrown or self.was_stopped:
                    self._end()

    def _pass_on(self, message: Message) -> None:
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._take, message)

    def _take(self, message: Message) -> None:
        if isinstance(message, Dead):
            self.status, self.has_crashed = ending_of(message.status), message.status not in NO_CRASH
        self._messages.put_nowait(message)


def _shut(connection: Connection) -> None:
    """End both directions, even if other processes hold the other end; what has arrived can still be read."""
    with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as other:
        other.shutdown(socket.SHUT_RDWR)
