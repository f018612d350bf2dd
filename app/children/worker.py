"""A worker of a service: a server process that is a copy of its supervisor."""

import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing import Pipe, connection
from typing import TypeAlias

from uvicorn import Config

from app.http.server import GracefulServer
from app.processes.forks import start_copy
from app.processes.sources import Sources

Serve: TypeAlias = Callable[[GracefulServer], int]
"""A function that serves until a signal, and returns the exit code."""
CHANGED = 5
"""The exit code of a worker that would read other files than its siblings."""
READY = b"ready"
ASK_S = 1.0


class Worker:
    """One of several server processes, a copy of the supervisor."""

    def __init__(self, config: Config, sources: Sources, serve: Serve) -> None:
        """Start the process, which serves only if it has read ``sources``."""
        self.is_serving, self.is_leaving = False, False
        self._connection, theirs = Pipe()
        self._asked_at, self._is_asked = 0.0, False
        self._patience_s = config.timeout_worker_healthcheck
        # The supervisor stops it, or dies.
        run = partial(_serve, _WorkerServer(config, sources), theirs, serve)
        self._process = start_copy("pullback worker", run, signal.SIGINT)
        # The process has its own copy of this end. Once it dies, the pipe has no writer.
        theirs.close()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def sentinel(self) -> int:
        """A descriptor that is readable once the process has ended, until ``exitcode`` is not ``None``."""
        return self._process.sentinel

    @property
    def exitcode(self) -> int | None:
        """What the process ended with, ``None`` while it runs."""
        return self._process.poll()

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        self.is_leaving, self.is_serving = True, False
        self._process.send_signal(number)

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()

    def exchange(self, now: float) -> None:
        """Ask whether the worker is ready, and read the answer to the last question if it has come; do not wait."""
        try:
            if self._is_asked and self._connection.poll(0):
                self.is_serving, self._is_asked = self._connection.recv_bytes() == READY and not self.is_leaving, False
            if not self._is_asked and (not self.is_serving or now - self._asked_at >= ASK_S):
                self._connection.send_bytes(b"ready?")
                self._asked_at, self._is_asked = now, True
        except (OSError, EOFError):
            pass  # it has died, which its exit code shows

    def is_hung(self, now: float) -> bool:
        """Return whether the worker has not answered for too long."""
        return self._is_asked and now - self._asked_at > self._patience_s


def _serve(server: GracefulServer, asked: connection.Connection, serve: Serve) -> int:
    """Serve, in the worker's own process; return its exit code."""
    threading.Thread(target=_answer, args=(server, asked), daemon=True).start()
    return serve(server)


def _answer(server: GracefulServer, asked: connection.Connection) -> None:
    """Tell the supervisor whether the server is ready, whenever it asks."""
    with suppress(OSError, EOFError):  # the supervisor has died
        while asked.recv_bytes():
            asked.send_bytes(READY if server.started else b"not yet")


class _WorkerServer(GracefulServer):
    """The server of a worker."""

    def __init__(self, config: Config, sources: Sources) -> None:
        """Store the files that the worker must have read."""
        super().__init__(config)
        self._sources = sources

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, unless a file has changed before the application has read it."""
        if self._sources.changed():
            sys.exit(CHANGED)
        await super().startup(sockets)
