"""The socket protocol of i-PI: its server moves atoms, and asks drivers for energies, forces and virials.

The server sends STATUS, INIT, POSDATA, GETFORCE and EXIT; a driver answers NEEDINIT, READY or HAVEDATA to a status, and
FORCEREADY with numbers to GETFORCE. Headers are ASCII, padded to 12 bytes. Numbers are doubles and integers of 32 bits,
little-endian, in atomic units. The vectors of a cell are columns on the wire, and of its virial, which is -dE/dε, the
server uses the upper triangle.

Source: ``ipi/interfaces/sockets.py``, ``ipi/engine/forces.py`` and ``i-pi-driver-py`` of i-PI 3.3.1.
"""

import socket
import time
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from pullback.dtypes import Array
from pullback.errors import BadAnswer, BadArgument, CannotConnect, ConnectionLost, TimedOut

BOHR, HARTREE = 0.529177210903, 27.211386245988
"""In Å and eV. Source: CODATA 2018."""
HEADER = 12
PREFIX = "/tmp/ipi_"
"""What precedes the name of a Unix socket, in i-PI and its drivers."""
PAUSES_S = 0.05, 1.0
"""The first and the longest pause between two attempts to connect."""
MAX_NUMBERS, MAX_TEXT = 1 << 22, 1 << 24
"""The most numbers of positions that are taken at once, and the most bytes of text."""
UNREAD = 1 << 10
"""How many parts of what is left to read are dropped before a connection closes."""
PORTS = range(1, 1 << 16)


class Channel:
    """A connection. ``peer`` names the other side in errors; a message has ``timeout`` seconds to be complete."""

    def __init__(self, connection: socket.socket, peer: str, timeout: float) -> None:
        """Take a connected socket."""
        self.peer, self._socket, self._timeout = peer, connection, timeout
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def header(self, *, waits: bool = False) -> str:
        """Return the next header; ``waits`` is for one that may take any time to begin.

        Raises ``ConnectionLost`` and ``TimedOut``, as all reading and sending does.
        """
        first = self._read(1, None if waits else self._timeout)
        return (first + self._read(HEADER - 1, self._timeout)).decode("ascii", "replace").rstrip()

    def integer(self) -> int:
        """Return an integer."""
        return int(np.frombuffer(self._read(4, self._timeout), "<i4")[0])

    def numbers(self, *shape: int) -> Array:
        """Return numbers of a shape that the caller bounds."""
        data = self._read(8 * int(np.prod(shape)), self._timeout)
        return np.frombuffer(data, "<f8").reshape(shape)

    def text(self) -> str:
        """Return a text that follows its length; raise ``BadAnswer`` for one that is too long."""
        length = self.integer()
        if not 0 <= length <= MAX_TEXT:
            raise BadAnswer(f"{self.peer}: expected a text of at most {MAX_TEXT} bytes, got {length}")
        return self._read(length, self._timeout).decode("utf-8", "replace")

    def send(self, *parts: str | bytes | int | Array) -> None:
        """Send headers, bytes, integers and arrays of numbers, at once."""
        self._socket.settimeout(self._timeout)
        try:
            self._socket.sendall(b"".join(map(_encoded, parts)))
        except TimeoutError:
            raise TimedOut(f"{self.peer} takes no data for {self._timeout:g} s") from None
        except OSError as error:
            raise ConnectionLost(f"{self.peer} closed the connection: {error.strerror}") from error

    def close(self) -> None:
        """Close the connection after what the other side has sent, which would otherwise see a reset."""
        with self._socket as connection, suppress(OSError):
            connection.setblocking(False)
            connection.shutdown(socket.SHUT_WR)
            for _ in range(UNREAD):
                if not connection.recv(1 << 16):
                    break

    def _read(self, size: int, timeout: float | None) -> bytearray:
        data, place = bytearray(size), 0
        ends = None if timeout is None else time.monotonic() + timeout
        try:
            while place < size:
                self._socket.settimeout(None if ends is None else max(1e-3, ends - time.monotonic()))
                read = self._socket.recv_into(memoryview(data)[place:])
                if not read:
                    raise ConnectionLost(f"{self.peer} closed the connection without EXIT")
                place += read
                if ends is not None and place < size and time.monotonic() > ends:
                    raise TimeoutError
        except TimeoutError:
            got = f"got {place} of {size} bytes"
            raise TimedOut(f"{self.peer}: expected a whole message in {timeout:g} s, {got}") from None
        except OSError as error:
            raise ConnectionLost(f"{self.peer} closed the connection: {error.strerror}") from error
        return data


class IpiAddress(NamedTuple):
    """The path of a Unix socket, or else a host and a port."""

    path: str
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path.removeprefix(PREFIX)}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def connect(self, wait: float) -> socket.socket:
        """Return a connection, or raise ``CannotConnect``; try for ``wait`` seconds until a server is there."""
        ends, (pause, longest) = time.monotonic() + wait, PAUSES_S
        while True:
            connection = None
            try:
                if not self.path:
                    return socket.create_connection((self.host, self.port), timeout=max(1.0, wait))
                connection = socket.socket(socket.AF_UNIX)
                connection.connect(self.path)
                return connection
            except OSError as error:
                if connection is not None:
                    connection.close()
                is_early = isinstance(error, ConnectionRefusedError | FileNotFoundError)
                if not is_early or time.monotonic() + pause > ends:
                    reason = f"no i-PI server at {self}: {error.strerror or error}"
                    raise CannotConnect(f"{reason}; start i-PI, or wait longer with --wait") from error
            time.sleep(pause)
            pause = min(2 * pause, longest)

    def listen(self) -> socket.socket:
        """Return a socket that listens here; raise ``CannotConnect``."""
        try:
            if not self.path:
                family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
                return socket.create_server((self.host, self.port), family=family)
            listener = socket.socket(socket.AF_UNIX)
            try:
                listener.bind(self.path)
                listener.listen()
            except OSError:
                listener.close()
                raise
            return listener
        except OSError as error:
            cure = "choose another, or end the server there" if not self.path else f"is {self.path} another server's?"
            raise CannotConnect(f"cannot listen at {self}: {error.strerror or error}; {cure}") from error


def ipi_address(text: str) -> IpiAddress:
    """Return the address ``unix:NAME``, with a name or path, or ``HOST:PORT``; raise ``BadArgument`` for others."""
    kind, _, name = text.partition(":")
    if kind == "unix" and name and "\0" not in name:
        return IpiAddress(name if "/" in name else PREFIX + name)
    host, _, port = text.rpartition(":")
    if kind != "unix" and host and port.isascii() and port.isdigit() and int(port) in PORTS:
        return IpiAddress("", host.removeprefix("[").removesuffix("]"), int(port))
    raise BadArgument(f"expected unix:NAME or HOST:PORT, with a port from 1 to {PORTS[-1]}, got {text!r}")


def _encoded(part: str | bytes | int | Array) -> bytes:
    if isinstance(part, bytes):
        return part
    if isinstance(part, str):
        return part.ljust(HEADER).encode("ascii")
    return np.asarray(part, "<i4" if isinstance(part, int) else "<f8").tobytes()
