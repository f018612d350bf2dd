"""The head of a response, sent together with its body."""

import asyncio
from typing import Any

# Longer pieces are written separately: copying them would cost more than the system call that it saves.
JOINED = 1 << 15


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
        """Send a head that was kept, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        head, self._head, self._lone = self._head, b"", None
        if head and not self._transport.is_closing():
            self._transport.write(head)
