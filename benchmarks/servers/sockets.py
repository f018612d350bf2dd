"""The floor of a server in Python: uvloop's sockets, without a parser or an app. ``python sockets.py PORT``.

It finds the length of a request, receives the body into one buffer, and returns the first half of it.
"""

import asyncio
import re
import sys
from typing import cast

import uvloop

LENGTH = re.compile(rb"\r\ncontent-length: ([0-9]+)\r\n", re.IGNORECASE)
END, BUFFER = b"\r\n\r\n", 1 << 16


class Half(asyncio.BufferedProtocol):
    """A connection with one request at a time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start with an empty buffer."""
        self._transport = cast(asyncio.Transport, transport)
        self._data = bytearray(BUFFER)
        self._filled = self._start = self._end = 0

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the free part of the buffer."""
        del sizehint
        return memoryview(self._data)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Find the end of the request in its first part, and answer when it is whole."""
        self._filled += nbytes
        if not self._end:
            self._start = self._data.find(END, 0, self._filled) + len(END)
            if self._start < len(END):
                return
            found = LENGTH.search(self._data, 0, self._start)
            self._end = self._start + (int(found[1]) if found else 0)
            if self._end > len(self._data):
                # A new buffer, because uvloop still has a view of this one, which therefore cannot grow.
                self._data = self._data + bytes(self._end - len(self._data))
        if self._filled >= self._end:
            half = (self._end - self._start) // 2
            head = b"HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ncontent-length: %d\r\n\r\n" % half
            self._transport.writelines([head, memoryview(self._data)[self._start : self._start + half]])
            self._filled = self._end = 0


async def serve(port: int) -> None:
    """Serve until the process is stopped."""
    server = await asyncio.get_running_loop().create_server(Half, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
