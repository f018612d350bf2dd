"""What the requests of a connection know about it, and when it is read."""

import asyncio
import fcntl
import termios
from collections.abc import Sized
from dataclasses import dataclass, field

from uvicorn.protocols.http.flow_control import FlowControl

CONNECTION = "pullback.connection"
"""The key in a request's scope for the ``Link`` of its connection."""


@dataclass(slots=True)
class Link:
    """What the requests of a connection know about it.

    ``tasks`` are those of all requests in this process. ``waiting`` are the requests on this connection that follow the
    one in progress. ``is_lost``: the client has disconnected. The next request has waited for ``waited_s`` already.
    """

    tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    waiting: Sized = ()
    transport: asyncio.Transport | None = None
    is_lost: bool = False
    waited_s: float = 0.0

    def has_more(self) -> bool:
        """Return whether another request of this connection has arrived, or a part of one."""
        return bool(self.waiting) or (self.transport is not None and has_unread(self.transport))


class PipelineFlow(FlowControl):
    """Flow control that reads nothing while requests wait on the connection, whoever asks for it."""

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
