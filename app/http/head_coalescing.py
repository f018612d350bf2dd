"""A transport that sends the head of an answer with its body, in one packet and one call of the system."""

import asyncio
from typing import Any

# What is longer goes by itself: to copy it would cost more than the call that it saves.
JOINED = 1 << 15


class HeadCoalescing:
    """A transport around another: what begins like the head of an answer waits for what comes next, one turn at most.

    The server writes heads and bodies one by one, and each is a call of the system and a packet.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        """Send through ``transport``."""
        self._transport, self._loop, self._head = transport, loop, b""

    def __getattr__(self, name: str) -> Any:
        """Be the other transport in all else."""
        return getattr(self._transport, name)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send ``data``, or keep it for a moment."""
        head, self._head = self._head, b""
        if not head and data[:5] == b"HTTP/":
            self._head = bytes(data)
            self._loop.call_soon(self._flush)
        elif head and len(data) <= JOINED:
            self._transport.write(head + data)
        else:
            if head:
                self._transport.write(head)
            self._transport.write(data)

    def close(self) -> None:
        """Send what was kept, and close."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        head, self._head = self._head, b""
        if head and not self._transport.is_closing():
            self._transport.write(head)
