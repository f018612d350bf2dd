"""The requests and the responses in a stream of bytes: where each begins and ends, and what their bodies have."""

import re
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import httptools

MAX_HEAD = 1 << 18
"""The most bytes of a head that are read; a longer one passes unread."""
MAX_BODY = 8 << 20
"""The most bytes of a body that are kept."""
END_OF_HEAD = b"\r\n\r\n"
HTTP_2 = b"PRI * HTTP/2"
"""How a connection of HTTP/2 begins that was not agreed on in HTTP/1.1."""
FIRST_FINAL = 200
UNREAD = ("CONNECT", "HEAD")
"""The methods whose responses cannot be told from their heads alone."""


class IsHttp2(Exception):
    """A connection speaks HTTP/2."""


@dataclass
class Room:
    """The bytes that all bodies may take together."""

    left: int
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, count: int) -> bool:
        """Take room if there is enough, negative to give it back; report whether there was."""
        with self._lock:
            is_enough = count <= self.left
            self.left -= count if is_enough else 0
        return is_enough


@dataclass(eq=False)
class Content:
    """A body, as long as it is short enough and there is room for it: else ``is_whole`` is false."""

    room: Room
    is_whole: bool = True
    _parts: list[bytes] = field(default_factory=list[bytes])
    _size: int = 0

    def add(self, part: bytes) -> None:
        """Keep the next bytes."""
        if not self.is_whole:
            return
        if self._size + len(part) > MAX_BODY or not self.room.take(len(part)):
            self.drop()
            return
        self._parts.append(part)
        self._size += len(part)

    def drop(self) -> None:
        """Give the room back; nothing is kept from now on."""
        self.room.take(-self._size)
        self.is_whole, self._size = False, 0
        self._parts.clear()

    def read(self) -> bytes:
        """Return all bytes."""
        return b"".join(self._parts)


@dataclass(eq=False)
class Exchange:
    """A request and its response. ``is_encoded`` is whether one of the bodies is compressed."""

    method: str
    target: str
    request: Content
    response: Content
    status: int = 0
    is_encoded: bool = False

    def drop(self) -> None:
        """Forget both bodies."""
        self.request.drop()
        self.response.drop()


class _Request:
    """A request that httptools parses. ``exchange`` gets its body, once the head is complete."""

    def __init__(self) -> None:
        self.head = b""
        self.target = b""
        self.fields: dict[bytes, bytes] = {}
        self.ends = self.begins = 0
        self.exchange: Exchange | None = None
        self.feed = httptools.HttpRequestParser(self).feed_data

    def on_message_begin(self) -> None:
        self.begins += 1

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields[name.lower()] = value

    def on_body(self, part: bytes) -> None:
        if self.exchange is not None:
            self.exchange.request.add(part)

    def on_message_complete(self) -> None:
        self.ends += 1


class RequestReader:
    """Reads the requests of one connection on their way.

    ``begin(method, target)`` returns the exchange of a request. After bytes that are no HTTP/1, of an upgrade, and of
    requests whose boundary cannot be found, ``is_readable`` is false, and the rest passes as it is.
    """

    def __init__(self, port: int, netloc: str, begin: Callable[[str, str], Exchange]) -> None:
        """A header Host that names this machine at the ``port`` becomes ``netloc``; nothing else changes."""
        self._host = re.compile(rb"(?im)^(host:[ \t]*)(?:127\.0\.0\.1|localhost):%d[ \t]*\r$" % port)
        self._netloc = rb"\g<1>" + netloc.encode("ascii") + b"\r"
        self._begin = begin
        self.is_readable = True
        self._request: _Request | None = None
        self._left = 0
        """The bytes that are left of a body whose length is known."""

    def feed(self, data: bytes) -> bytes:
        """Read the next bytes; return those to pass on now. A head passes when all of it has come.

        Raises ``IsHttp2``.
        """
        passed: list[bytes] = []
        while data and self.is_readable:
            request = self._request
            if request is None:
                request = self._request = _Request()
            if request.exchange is None:
                head, data = self._take_head(request, data)
                passed.append(head)
            elif self._left:
                part, data = data[: self._left], data[self._left :]
                self._left -= len(part)
                request.exchange.request.add(part)
                passed.append(part)
                if not self._left:
                    self._request = None
            else:
                self._take_chunks(request, data)
                passed.append(data)
                data = b""
        return b"".join([*passed, data])

    def _take_head(self, request: _Request, data: bytes) -> tuple[bytes, bytes]:
        """Return a head that is complete, and the bytes behind it."""
        before = len(request.head)
        request.head += data
        if request.head.startswith(HTTP_2):
            raise IsHttp2
        end = request.head.find(END_OF_HEAD, max(0, before - len(END_OF_HEAD))) + len(END_OF_HEAD)
        is_complete = end >= len(END_OF_HEAD)
        try:
            request.feed(data[: end - before] if is_complete else data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            return self._give_up(request)
        if not is_complete:
            return (b"", b"") if len(request.head) <= MAX_HEAD else self._give_up(request)
        head, data = request.head[:end], request.head[end:]
        method = head.lstrip().partition(b" ")[0].decode("latin-1")
        length = request.fields.get(b"content-length")
        has_end = request.ends or length is not None or b"transfer-encoding" in request.fields
        if method in UNREAD or not request.begins or not has_end:
            return self._give_up(request)
        request.exchange = self._begin(method, request.target.decode("latin-1"))
        request.exchange.is_encoded = b"content-encoding" in request.fields
        if request.ends:
            self._request = None
        elif length is not None and b"transfer-encoding" not in request.fields:
            self._left = int(length)
        return self._host.sub(self._netloc, head, count=1), data

    def _take_chunks(self, request: _Request, data: bytes) -> None:
        try:
            request.feed(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.is_readable = False
        if request.begins > 1:
            self.is_readable = False  # where the second begins is unknown
        if request.ends:
            self._request = None

    def _give_up(self, request: _Request) -> tuple[bytes, bytes]:
        self.is_readable, self._request = False, None
        return request.head, b""


class ResponseReader:
    """Reads the responses of one connection on their way. ``done(exchange)`` is called at the end of each.

    ``pending`` are the exchanges without a whole response, in order. ``has_begun`` is whether the first of them has
    some bytes of it.
    """

    def __init__(self, pending: deque[Exchange], done: Callable[[Exchange], None]) -> None:
        """Start before the first byte."""
        self._pending, self._done = pending, done
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._status = 0
        self._is_encoded = False
        self.has_begun = False

    @property
    def is_readable(self) -> bool:
        """Whether the responses can still be told apart."""
        return self._parser is not None

    def feed(self, data: bytes) -> None:
        """Read the next bytes."""
        self.has_begun = True
        if self._parser is None:
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.close()

    def close(self) -> None:
        """Read no more: the parser and this object refer to each other."""
        self._parser = None

    def on_message_begin(self) -> None:
        """Begin a response."""
        self.has_begun, self._is_encoded = True, False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a compressed body."""
        self._is_encoded |= name.lower() == b"content-encoding" and value.lower() != b"identity"

    def on_headers_complete(self) -> None:
        """Note the status."""
        self._status = self._parser.get_status_code() if self._parser is not None else 0

    def on_body(self, part: bytes) -> None:
        """Keep a part of the body."""
        if self._pending:
            self._pending[0].response.add(part)

    def on_message_complete(self) -> None:
        """End a response, unless another follows for the same request."""
        self.has_begun = False
        if self._status < FIRST_FINAL or not self._pending:
            return
        exchange = self._pending.popleft()
        exchange.status, exchange.is_encoded = self._status, exchange.is_encoded or self._is_encoded
        self._done(exchange)
