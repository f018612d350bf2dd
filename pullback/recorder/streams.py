"""Connections that never wait, and the bytes that go from one to the other."""

import contextlib
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Any

READ = 1 << 16
RESET = struct.pack("ii", 1, 0)


class Lost(Exception):
    """A connection has failed."""

    def __init__(self, stream: "Stream", error: OSError) -> None:
        """Take the connection, and why it failed."""
        super().__init__(str(error))
        self.stream = stream


class Stream:
    """A connection, with or without TLS."""

    def __init__(self, opened: socket.socket) -> None:
        """Take over a connected socket."""
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        opened.setblocking(False)
        self._socket, self.number = opened, opened.fileno()
        self._tls = opened if isinstance(opened, ssl.SSLSocket) else None

    @property
    def has_more(self) -> bool:
        """Whether bytes can be received that the kernel does not know of."""
        return self._tls is not None and self._tls.pending() > 0

    def receive(self) -> bytes | None:
        """Return the next bytes, none at the end, ``None`` if there are none yet; raise ``Lost``."""
        try:
            return self._socket.recv(READ)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except OSError as error:
            raise Lost(self, error) from error

    def send(self, data: bytes) -> int:
        """Send some of the bytes, and return how many; raise ``Lost``."""
        try:
            return self._socket.send(data) if data else 0
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except OSError as error:
            raise Lost(self, error) from error

    def finish(self, data: bytes, seconds: float | None) -> None:
        """Send the last bytes and the end, and wait until the other side has read them or the time is over.

        To close with bytes unread would reset the connection before it has.
        """
        with contextlib.suppress(OSError):
            self._socket.settimeout(None)
            self._socket.sendall(data)
            self.end()
            self._socket.settimeout(seconds)
            while seconds and self._socket.recv(READ):
                pass

    def end(self) -> None:
        """Send the end of the stream, which TLS does not have."""
        if self._tls is None:
            self._shutdown(socket.SHUT_WR)

    def stop(self) -> None:
        """End both directions, and wake who waits."""
        self._shutdown(socket.SHUT_RDWR)

    def close(self, *, is_reset: bool = False) -> None:
        """Close the connection, with a reset if ``is_reset``."""
        with contextlib.suppress(OSError):
            if is_reset:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self._socket.close()

    def _shutdown(self, how: int) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(how)


class Pump:
    """One direction: what ``sink`` does not take holds ``source`` back.

    ``change`` returns the bytes to pass on for those that have come; ``passed`` is called with these afterwards. If it
    ``outlives`` its sink, bytes that this does not take are dropped.
    """

    def __init__(
        self,
        source: Stream,
        sink: Stream,
        change: Callable[[bytes], bytes],
        passed: Callable[[bytes], None],
        *,
        outlives: bool,
    ) -> None:
        """Pass nothing yet."""
        self.source, self._sink, self._change, self._passed = source, sink, change, passed
        self._outlives = outlives
        self.rest = b""
        self.has_ended = self._is_dropping = False

    @property
    def is_ready(self) -> bool:
        """Whether it takes bytes from its source."""
        return not self.rest and not self.has_ended

    def pull(self) -> None:
        """Pass on what can be received now; raise ``Lost``."""
        while self.is_ready and (data := self.source.receive()) is not None:
            if not data:
                self.has_ended = True
                return
            self.rest = self._change(data)
            self.push()
            self._passed(data)
            if not self.source.has_more:
                return

    def push(self) -> None:
        """Send what is left; raise ``Lost``."""
        try:
            self.rest = b"" if self._is_dropping else self.rest[self._sink.send(self.rest) :]
        except Lost:
            if not self._outlives:
                raise
            self._is_dropping, self.rest = True, b""


def connected(family: int, address: Any, tls: ssl.SSLContext | None, host: str, seconds: float) -> Stream:
    """Return a connection; ``host`` is the name in the server's certificate. Raises ``OSError``."""
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.settimeout(seconds)
        opened.connect(address)
        return Stream(opened if tls is None else tls.wrap_socket(opened, server_hostname=host))
    except BaseException:
        opened.close()
        raise
