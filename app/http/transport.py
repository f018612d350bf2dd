"""The transport of a connection: when it is read, how responses are written to it, and what requests know about it."""

import asyncio
import fcntl
import math
import sys
import termios
from collections.abc import Sized
from dataclasses import dataclass, field
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl

CONNECTION = "pullback.connection"
"""The key in a request's scope for the ``Link`` of its connection."""
BEGAN = "pullback.began"
"""The key in a request's scope for the arrival of its first byte, a time of ``time.perf_counter``."""
# Longer pieces are written separately: copying them would cost more than the system call that it saves.
JOINED = 1 << 15
# Of what is not sent yet when a connection closes, the client must read this much in each period.
LEAST_REST, REST_S = 1 << 16, 60.0


@dataclass(slots=True)
class Link:
    """What the requests of a connection know about it.

    ``tasks`` are those of all requests in this process. ``waiting`` are the requests on this connection that follow the
    one in progress. ``is_lost``: the client has disconnected. The latest response ended at ``answered_at``, a time of
    ``time.perf_counter``.
    """

    tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    waiting: Sized = ()
    transport: asyncio.Transport | None = None
    is_lost: bool = False
    answered_at: float = 0.0

    def abort(self) -> bool:
        """Close the connection at once, although the client has not read everything; return whether it was open."""
        is_open = self.transport is not None and not self.is_lost
        if is_open and self.transport is not None:
            self.transport.abort()
        return is_open

    def has_more(self) -> bool:
        """Return whether another request of this connection has arrived, or a part of one."""
        return bool(self.waiting) or (self.transport is not None and has_unread(self.transport))


class PipelineFlow(FlowControl):
    """Flow control that does not resume reading while requests wait on the connection."""

    def __init__(self, transport: asyncio.Transport, waiting: Sized) -> None:
        """Control the reading of ``transport``; ``waiting`` are the requests that follow the one in progress."""
        super().__init__(transport)
        self._waiting = waiting

    def resume_reading(self) -> None:
        """Read on if no request waits."""
        if not self._waiting:
            super().resume_reading()


def has_unread(transport: asyncio.Transport) -> bool:
    """Return whether the kernel holds bytes that this transport has not read."""
    if transport.is_closing():
        return False
    count = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.FIONREAD, bytes(4))
    return any(count)


def unacknowledged(transport: asyncio.Transport) -> int:
    """Return how many of the bytes that were written to this transport the client's system has not received."""
    waiting = transport.get_write_buffer_size()
    if not transport.is_closing():
        # The kernel asks for more only when a third of its buffer is free: without it, a steady client seems to pause.
        count = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
        waiting += int.from_bytes(count, sys.byteorder)
    return waiting


class HeadCoalescing:
    """A wrapper of a transport that sends the head of a response with the body, one loop iteration later at most.

    The server writes heads and bodies separately, each with a system call and a packet.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        """Wrap ``transport``."""
        self._transport, self._loop, self._head = transport, loop, b""
        self._lone: asyncio.Handle | None = None
        # The server asks for each response.
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        """Return every other attribute of the wrapped transport."""
        return getattr(self._transport, name)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send ``data``, or keep a head until the body follows."""
        head, self._head = self._head, b""
        if head and self._lone is not None:
            self._lone.cancel()
        if not head and data[:5] == b"HTTP/":
            self._head, self._lone = bytes(data), self._loop.call_soon(self._flush)
        elif head and len(data) <= JOINED:
            self._transport.write(head + data)
        else:
            if head:
                self._transport.write(head)
            self._transport.write(data)

    def write_response(self, data: bytes) -> None:
        """Send a whole response, unless the transport is closing."""
        if self._head:
            self._flush()
        if not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        """Send a head that was kept, and close once the client has read everything, or reads too slowly."""
        self._flush()
        self._transport.close()
        self._watch_rest(math.inf)

    def _watch_rest(self, before: float) -> None:
        rest = self._transport.get_write_buffer_size()
        if rest and before - rest < LEAST_REST:
            self._transport.abort()
        elif rest:
            self._loop.call_later(REST_S, self._watch_rest, rest)

    def _flush(self) -> None:
        head, self._head, self._lone = self._head, b"", None
        if head and not self._transport.is_closing():
            self._transport.write(head)
