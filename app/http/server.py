"""The server of one process."""

import asyncio
import contextlib
import resource
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from uvicorn import Config, Server

from app.execution.lifecycle import LIFECYCLE
from app.telemetry.line_writer import STDERR, STDOUT
from app.telemetry.printed import PrintedLines

# The files of a process that are not connections: libraries, pipes, the files of TensorFlow. A process has fewer, and
# needs some at least, with some for each process of checks or jobs. ``SPARE_FILES`` are for connections over the limit.
OTHER_FILES, LEAST_FILES, FILES_OF_PROCESS, SPARE_FILES = 1024, 48, 8, 16
# How long the connections that are accepted last may take to open, TLS included.
OPENING_S = 1.0
# For so long, a thread that parses large JSON may keep the interpreter from the event loop; Python's default is 5 ms.
SWITCH_S = 5e-4
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

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve on these listeners until a signal; meanwhile, a rate bounds what the Python code of ops prints."""
        out, err = PrintedLines(STDOUT), PrintedLines(STDERR)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start; ``sockets`` are the listeners."""
        if self.should_exit:
            return  # a signal came while the application was loaded
        sys.setswitchinterval(SWITCH_S)
        await super().startup(sockets)
        # Copies, because the event loop has its own callbacks for the originals.
        self._listeners = [listener.dup() for listener in sockets or ()]
        for listener in self._listeners:
            asyncio.get_running_loop().add_reader(listener, self._accept_all, listener)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept the connections that the kernel has made, close the listeners, and stop as uvicorn does.

        From now on the answers close their connections. ``Connection.shutdown`` closes the idle ones.
        """
        self.lifespan.state[LIFECYCLE].stop()
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
        """Open the connections that wait on a listener, which does not block."""
        protocol = partial(self.config.http_protocol_class, self.config, self.server_state, self.lifespan.state)
        loop = asyncio.get_running_loop()
        accepted: list[socket.socket] = []
        # Without a descriptor, libuv would reset all that wait: those over the limit take turns to get their 503.
        limit = self.config.limit_concurrency or BACKLOG
        room = limit + SPARE_FILES - len(self.server_state.connections) - len(self._opening)
        with contextlib.suppress(OSError):  # none waits any more
            while len(accepted) < min(room, BACKLOG):
                accepted.append(listener.accept()[0])
        for connection in accepted:
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


def allow_connections(count: int, processes: int) -> int:
    """Raise this process's limit of open files, often 1,024, for ``count`` connections, as far as the system allows.

    Return how many connections it allows, at least one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + OTHER_FILES if hard == resource.RLIM_INFINITY else min(count + OTHER_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
        soft = needed
    if soft == resource.RLIM_INFINITY:
        return count
    return max(1, min(count, soft - LEAST_FILES - SPARE_FILES - FILES_OF_PROCESS * processes))
