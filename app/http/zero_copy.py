"""Large bodies and answers, between the socket and the application's own memory, without the copies on the way.

uvicorn parses, gathers and hands on a body in pieces, each of which is copied four times. Here the parser sees the head
and the beginning of a large body alone; the rest, whose length is known, is received where the application wants it.
"""

import asyncio
import contextlib
from collections.abc import Generator

import httptools
from starlette.types import Message
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

# What is left of a body when its head has come, from which on this pays.
LARGE = 1 << 18

_WASTE = 1 << 16


class ZeroCopyBody:
    """The body of one request, received without passing through the parser."""

    def __init__(self, connection: HttpToolsProtocol, cycle: RequestResponseCycle, size: int) -> None:
        """Stand between the application and ``cycle``, whose request has a body of ``size`` bytes."""
        self.room: memoryview | None = None
        self.size, self.came = size, 0
        self._connection, self._cycle, self._parsed = connection, cycle, cycle.receive
        self._told, self._is_past = 0, False
        setattr(cycle, "receive", self.receive)  # noqa: B010 - uvicorn has a type for each kind of message

    def lend(self, room: memoryview) -> None:
        """Have what is still to come of the body put into ``room``, which has a place for each byte of all of it.

        Messages then hold views of it. What came before, in the first message or two, is elsewhere.
        """
        self.room = room

    def take_back(self) -> None:
        """Have no more put into the room: what comes is wasted."""
        self.room = None

    async def receive(self) -> Message:
        """Return the next message of the request."""
        if not self._is_past or self._told == self.size:
            return await self._from_parser()
        cycle = self._cycle
        if not (cycle.disconnected or cycle.response_complete):
            await cycle.message_event.wait()
            cycle.message_event.clear()
        if cycle.disconnected or cycle.response_complete:
            return {"type": "http.disconnect"}
        piece = b"" if self.room is None else self.room[self._told : self.came]
        self._told = self.came
        return {"type": "http.request", "body": piece, "more_body": self.came < self.size}

    def count(self, nbytes: int) -> None:
        """Count bytes that came, and at the end of the body return to the parser: a new one, for what follows."""
        self.came += nbytes
        if self.came == self.size:
            connection = self._connection
            connection.transport.set_protocol(connection)
            connection.parser = httptools.HttpRequestParser(connection)
            connection.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
            connection.on_message_complete()
        self._cycle.message_event.set()

    async def flush(self) -> None:
        """Wait until the client has received everything: the application's memory is not needed any more."""
        transport = self._connection.transport
        if not transport.is_closing():
            transport.set_write_buffer_limits(0)
            await self._connection.flow.drain()
        if not transport.is_closing():
            transport.set_write_buffer_limits()

    @contextlib.contextmanager
    def cut_off(self) -> Generator[None]:
        """Cut the client off where this block fails: what it has not taken would be kept for it, and the memory too."""
        try:
            yield
        except BaseException:
            self._connection.transport.abort()
            raise

    async def _from_parser(self) -> Message:
        """Return what the parser saw, and leave it out from then on where there is room for the rest."""
        message: Message = dict(await self._parsed())
        self.came += len(message.get("body", b""))
        if message.get("more_body", False) and self.room is not None:
            self._told, self._is_past = self.came, True
            self._connection.transport.set_protocol(_Receiving(self, self._connection))
            self._connection.flow.resume_reading()
        return message


class _Receiving(asyncio.BufferedProtocol):
    """The protocol of a connection while the rest of a body comes."""

    def __init__(self, body: ZeroCopyBody, connection: HttpToolsProtocol) -> None:
        self._body = body
        self.buffer_updated = body.count
        self.connection_lost = connection.connection_lost
        self.pause_writing, self.resume_writing = connection.pause_writing, connection.resume_writing

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where the next bytes go."""
        del sizehint
        body = self._body
        if body.room is None:
            return memoryview(bytearray(min(_WASTE, body.size - body.came)))
        return body.room[body.came :]
