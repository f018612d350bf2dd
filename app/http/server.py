"""The server of one process, the supervisor of several, and the socket that they listen on."""

import signal
import socket
from collections.abc import Callable

from uvicorn import Config, Server
from uvicorn.supervisors import Multiprocess

PING_S = 0.5
WILDCARDS = ("0.0.0.0", "::", "")


class OneServer(Server):
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


class Workers(Multiprocess):
    """The supervisor of several processes, which announces them once and passes a second signal on."""

    def __init__(self, config: Config, sockets: list[socket.socket], announce: Callable[[], None]) -> None:
        """Store ``announce``, which is called once all workers accept requests."""
        super().__init__(config, sockets)
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

    def join_all(self) -> None:
        """Wait for the workers; pass on signals that arrive meanwhile."""
        while running := [worker for worker in self.processes if worker.exitcode is None]:
            running[0].process.join(0.1)
            if self.signal_queue:
                self.signal_queue.clear()
                self.terminate_all()


def listen(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address, not listening yet; raise ``OSError`` if the address is in use."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    listener.set_inheritable(True)
    return listener


def url_of(listener: socket.socket, scheme: str = "http") -> str:
    """Return the URL of the listener for clients on this machine."""
    host, port = listener.getsockname()[:2]
    if host in WILDCARDS:
        host = "127.0.0.1"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
