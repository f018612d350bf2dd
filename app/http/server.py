"""The server of one process, and the supervisor of several."""

import asyncio
import contextlib
import resource
import signal
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from uvicorn import Config, Server
from uvicorn.supervisors import Multiprocess, multiprocess

from app.execution.lifecycle import LIFECYCLE

PING_S = 0.5
# The files of a process that are not connections: libraries, pipes, the files of TensorFlow.
OTHER_FILES = 1024
# How long the connections that are accepted last may take to open, TLS included.
OPENING_S = 1.0
BACKLOG = 2048


class GracefulServer(Server):
    """The server of a process. It answers the requests that arrive before it closes its listener.

    libuv accepts one connection in each turn of the event loop, so that under load a new one waits behind thousands of
    requests on others. This server accepts all that wait.
    """

    def __init__(self, config: Config) -> None:
        """Start without listeners."""
        super().__init__(config)
        self._listeners: list[socket.socket] = []
        self._opening: set[asyncio.Task[Any]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start; ``sockets`` are the listeners."""
        await super().startup(sockets)
        # Copies, because the event loop has its own callbacks for the originals.
        self._listeners = [listener.dup() for listener in sockets or ()]
        for listener in self._listeners:
            asyncio.get_running_loop().add_reader(listener, self._accept_all, listener)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept the connections that the kernel has made, close the listeners, and stop as uvicorn does.

        From now on the answers close their connections. ``Connection.shutdown`` closes the idle ones.
        """
        self.lifespan.state[LIFECYCLE].draining = True
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener)
            self._accept_all(listener)
            listener.close()
        for server in self.servers:
            server.close()
        # uvicorn closes the connections that it knows. Those that the event loop has just accepted open in this turn.
        await asyncio.sleep(0)
        if self._opening:
            await asyncio.wait(self._opening, timeout=OPENING_S)
        await super().shutdown(sockets)

    def _accept_all(self, listener: socket.socket) -> None:
        protocol = partial(self.config.http_protocol_class, self.config, self.server_state, self.lifespan.state)
        loop = asyncio.get_running_loop()
        for connection in accept_all(listener):
            task = loop.create_task(loop.connect_accepted_socket(protocol, connection, ssl=self.config.ssl))
            self._opening.add(task)
            task.add_done_callback(self._opened)

    def _opened(self, task: asyncio.Task[Any]) -> None:
        self._opening.discard(task)
        if not task.cancelled():
            task.exception()  # that of a failed TLS handshake: its connection is closed


class OneServer(GracefulServer):
    """The server of a single process, which announces itself."""

    def __init__(self, config: Config, announce: Callable[[], None]) -> None:
        """Store ``announce``, which is called once the server accepts requests."""
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and announce the server."""
        await super().startup(sockets)
        if not self.should_exit:
            self._announce()


class Worker(multiprocess.Process):
    """One of several server processes."""

    @property
    def server(self) -> Server:
        """The server, created in its own process."""
        if self._server is None:
            self._server = GracefulServer(self.config)
        return self._server


class Workers(Multiprocess):
    """The supervisor of several processes, which announces them once and passes a second signal on."""

    def __init__(self, config: Config, sockets: list[socket.socket], announce: Callable[[], None]) -> None:
        """Store ``announce``, which is called once all workers accept requests."""
        super().__init__(config, sockets)
        # uvicorn's supervisor has no parameter for the class of its processes.
        setattr(multiprocess, "Process", Worker)  # noqa: B010 - a class of a module cannot be assigned
        self._announce: Callable[[], None] | None = announce
        self.cannot_start = False

    def keep_subprocess_alive(self) -> None:
        """Check the workers, every half second: announce them, or replace the dead ones.

        A worker that dies before all have started would die again, so it ends the service.
        """
        if self.should_exit.is_set():
            return
        for worker in self.processes:
            # The worker has its own copy of this end. Once it dies, the pipe has no writer, so a health check that is
            # under way ends at once instead of after its timeout.
            worker.child_conn.close()
        if self._announce is None:
            super().keep_subprocess_alive()
            self.cannot_start = self.should_exit.is_set()
        elif not all(worker.process.is_alive() for worker in self.processes):
            self.cannot_start = True
            self.should_exit.set()
        elif all(worker.is_ready(PING_S) for worker in self.processes):
            self._announce()
            self._announce = None

    def handle_int(self) -> None:
        """Stop without draining: send workers a second signal, after the one that starts every stop."""
        super().handle_int()
        self.signal_queue.append(signal.SIGINT)

    def terminate_all(self) -> None:
        """Stop the workers; before, close the listener here, or it would stay open when the last worker closes it."""
        for listener in self.sockets:
            listener.close()
        super().terminate_all()

    def join_all(self) -> None:
        """Wait for the workers; pass on signals that arrive meanwhile."""
        while running := [worker for worker in self.processes if worker.exitcode is None]:
            running[0].process.join(0.1)
            if self.signal_queue:
                self.signal_queue.clear()
                self.terminate_all()


def accept_all(listener: socket.socket) -> list[socket.socket]:
    """Return the connections that wait on a listener which does not block."""
    accepted: list[socket.socket] = []
    with contextlib.suppress(OSError):
        while len(accepted) < BACKLOG:
            accepted.append(listener.accept()[0])
    return accepted


def allow_connections(count: int) -> None:
    """Raise this process's limit of open files, often 1,024, for ``count`` connections, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + OTHER_FILES if hard == resource.RLIM_INFINITY else min(count + OTHER_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
