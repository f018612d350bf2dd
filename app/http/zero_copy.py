"""Large bodies and responses, between the socket and the application's own memory, without intermediate copies.

uvicorn parses, collects and passes on a body in pieces, each of which is copied four times. Here the parser sees only
the head and the beginning of a large body; the rest, of known length, is received directly into the application's
memory.
"""

import asyncio
import contextlib
from collections.abc import Generator

import httptools
from starlette.types import Message
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

# From this size on, it pays to receive the rest of a body without the parser.
LARGE = 1 << 18
# How much of a discarded body is received at a time.
DISCARD_SIZE = 1 << 16


def new_parser(connection: HttpToolsProtocol) -> httptools.HttpRequestParser:
    """Return a parser for the next request of a connection, as uvicorn creates its first."""
    parser = httptools.HttpRequestParser(connection)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser


class ZeroCopyBody:
    """The body of one request, received without the parser.

    If ``buffer`` is set, the rest of the body goes there: it has the size of the whole body, and messages hold views of
    it. Bytes that arrived before, in the first message or two, are not in it. Without a buffer, bytes are discarded.
    """

    def __init__(self, connection: HttpToolsProtocol, cycle: RequestResponseCycle, size: int) -> None:
        """Replace ``receive`` of ``cycle``, whose request has a body of ``size`` bytes."""
        self.buffer: memoryview | None = None
        self.size, self.received = size, 0
        self._connection, self._cycle, self._receive_parsed = connection, cycle, cycle.receive
        self._delivered, self._bypasses_parser = 0, False
        setattr(cycle, "receive", self.receive)  # noqa: B010 - uvicorn has a type for each kind of message

    async def receive(self) -> Message:
        """Return the next message of the request."""
        if not self._bypasses_parser or self._delivered == self.size:
            return await self._from_parser()
        cycle = self._cycle
        if not (cycle.disconnected or cycle.response_complete):
            await cycle.message_event.wait()
            cycle.message_event.clear()
        if cycle.disconnected or cycle.response_complete:
            return {"type": "http.disconnect"}
        piece = b"" if self.buffer is None else self.buffer[self._delivered : self.received]
        self._delivered = self.received
        return {"type": "http.request", "body": piece, "more_body": self.received < self.size}

    def count(self, nbytes: int) -> None:
        """Count received bytes; at the end of the body, return to a new parser for the next request."""
        self.received += nbytes
        if self.received == self.size:
            connection = self._connection
            connection.transport.set_protocol(connection)
            connection.parser = new_parser(connection)
            connection.on_message_complete()
        self._cycle.message_event.set()

    async def flush(self) -> None:
        """Wait until everything is sent to the client, so that the application's memory is no longer needed."""
        transport = self._connection.transport
        if not transport.is_closing():
            transport.set_write_buffer_limits(0)
            await self._connection.flow.drain()
        if not transport.is_closing():
            transport.set_write_buffer_limits()

    @contextlib.contextmanager
    def cut_off(self) -> Generator[None]:
        """Abort the connection if this block fails: unsent data would keep the application's memory."""
        try:
            yield
        except BaseException:
            self._connection.transport.abort()
            raise

    async def _from_parser(self) -> Message:
        """Return a message of the parser; bypass the parser from then on if there is a buffer for the rest."""
        message: Message = dict(await self._receive_parsed())
        self.received += len(message.get("body", b""))
        if message.get("more_body", False) and self.buffer is not None:
            self._delivered, self._bypasses_parser = self.received, True
            self._connection.transport.set_protocol(_BodyProtocol(self, self._connection))
            self._connection.flow.resume_reading()
        return message


class _BodyProtocol(asyncio.BufferedProtocol):
    """The protocol of a connection while it receives the rest of a body."""

    def __init__(self, body: ZeroCopyBody, connection: HttpToolsProtocol) -> None:
        self._body = body
        self.buffer_updated = body.count
        self.connection_lost = connection.connection_lost
        self.pause_writing, self.resume_writing = connection.pause_writing, connection.resume_writing

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the memory for the next bytes."""
        del sizehint
        body = self._body
        if body.buffer is None:
            return memoryview(bytearray(min(DISCARD_SIZE, body.size - body.received)))
        return body.buffer[body.received :]
