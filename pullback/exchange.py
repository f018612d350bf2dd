"""A request on a connection of asyncio, and its response as far as it came."""

import asyncio

import httptools

from pullback.http1 import ResponseParser


class Exchange:
    """A request that was sent: the response as far as it came, and how the exchange ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, is_stream: bool = False) -> None:
        """Start before the first byte; the caller takes the content of a stream in parts."""
        self.parser = ResponseParser()
        self.is_stream = is_stream
        self.arrived: asyncio.Future[None] | None = None
        """Wakes the caller who waits for the next part of a stream."""
        self.ended: asyncio.Future[None] = loop.create_future()
        self.error: Exception | None = None

    def wake(self) -> None:
        """Wake the caller who waits for the next part."""
        if self.arrived is not None and not self.arrived.done():
            self.arrived.set_result(None)

    def end(self, error: Exception | None = None) -> None:
        """End with the complete response, or with an error."""
        if not self.ended.done():
            self.error = error
            self.ended.set_result(None)
        self.wake()

    def feed(self, data: bytes) -> memoryview | None:
        """Parse the next bytes; return the memory for the rest, if it needs no parser."""
        try:
            self.parser.feed(data)
            rest = self.parser.rest() if not self.is_stream else None
        except (MemoryError, httptools.HttpParserError) as error:
            self.end(error)
            return None
        if self.parser.is_complete:
            self.end()
        return rest

    def lose(self) -> None:
        """End because the connection is closed, which may complete the response."""
        if self.ended.done():
            return
        try:
            self.parser.end()
        except OSError as error:
            self.end(error)
        self.end()
