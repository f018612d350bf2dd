"""HTTP/1.1 without I/O: the bytes of a request, and the parser of its response. Both clients use it.

httptools parses the responses, as it parses requests in uvicorn.
"""

import sys
from collections.abc import Mapping
from functools import cached_property, lru_cache
from typing import Any

import httptools
import numpy as np

from pullback.addresses import Address, Url, basic
from pullback.bodies import Body
from pullback.calls import Call, Content
from pullback.limits import Limit
from pullback.responses import Response
from pullback.safetensors import Buffer

API, NAMES = "opentelemetry.trace", ("Traceparent", "Tracestate")
# The flags that are defined: whether the trace is sampled, and whether its id is random.
FLAGS = 3
IDLE_S = 30.0
"""How long a connection may be idle and still be used again, in seconds: less than load balancers allow."""
READ = 1 << 16
HEADERS = {name.encode(): name for name in ("content-length", "content-type", "retry-after", "transfer-encoding")}
MAX_HEAD = 1 << 18
JOINED = 1 << 16
"""Up to this many bytes, the head and the body are copied into one piece, for one send."""


# The application has loaded that API if it traces; this module never imports it.
def trace_headers(given: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that name the current span; none without one, or if a header of the client is ``given``."""
    # Another thread may be importing it.
    get_current_span: Any = getattr(sys.modules.get(API), "get_current_span", None)
    if get_current_span is None or not given.keys().isdisjoint(NAMES):
        return {}
    span = get_current_span().get_span_context()
    if not span.is_valid:
        return {}
    headers = {"traceparent": f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags & FLAGS:02x}"}
    state = span.trace_state.to_header()
    return {**headers, "tracestate": state} if state and state.isascii() and state.isprintable() else headers


class NoResponse(ConnectionResetError):
    """The connection was closed before the first byte of a response.

    On a connection that was kept, the server may have closed it before the request came. A call that may be repeated
    is then sent once more, on a new connection.
    """


class Requests:
    """The requests to an address."""

    def __init__(self, address: Address) -> None:
        """Set the address."""
        self._address = address

    @cached_property
    def _fixed(self) -> tuple[str, str]:
        """The target without the path of a call, and the headers that all requests have.

        A proxy gets whole URLs as targets, but for those with TLS, to which it opens a tunnel.
        """
        location, proxy = self._address.location, self._address.http_proxy()
        headers = {"Host": location.netloc, **self._address.headers}
        target = location.path.rstrip("/")
        if proxy is not None and location.scheme == "http":
            target = f"http://{location.netloc}{target}"
            headers |= _proxy_headers(proxy)
        return target, _lines(headers)

    def tunnel(self, proxy: Url) -> bytes:
        """Return the request for a tunnel through a proxy."""
        location = self._address.location
        target = f"{location.netloc.removesuffix(f':{location.port}')}:{location.port}"
        return f"CONNECT {target} HTTP/1.1\r\n{_lines({'Host': target, **_proxy_headers(proxy)})}\r\n".encode("ascii")

    def head(self, call: Call[Any], limit: Limit) -> bytes:
        """Return the head of a request."""
        path, lines = self._fixed
        deadline = "" if limit.seconds is None else _lines(limit.headers())
        own = _content_lines(call.content) + (_lines(dict(call.headers)) if call.headers else "")
        trace = _lines(trace_headers(self._address.headers))
        return f"{call.method} {path}{call.path} HTTP/1.1\r\n{lines}{own}{deadline}{trace}\r\n".encode("ascii")


def is_small(head: bytes, body: Body) -> bool:
    """Report whether a request is sent in one piece."""
    return len(head) + body.size <= JOINED


def joined(head: bytes, body: Body | None) -> bytes:
    """Return a request as one piece."""
    return head if body is None else b"".join((head, *body.pieces))


class ResponseParser:
    """The response that httptools parses, which calls the methods that begin with ``on_``."""

    def __init__(self) -> None:
        """Start before the first byte."""
        self.headers: dict[str, str] = {}
        self.content: Buffer = b""
        self.is_complete = False
        self.status = 0
        self.keeps_alive = False
        self.is_final = False
        self._size = 0
        """How many bytes have come since the last part of the content: those of the head, or of trailers."""
        self._fields: dict[bytes, bytes] = {}
        self._chunks: list[bytes] = []
        self.on_header = self._fields.__setitem__
        self.on_body = self._chunks.append
        self._parser = httptools.HttpResponseParser(self)

    def finish(self) -> Response:
        """Return the complete response; nothing can be parsed after it."""
        # The parser and this object refer to each other: to find that takes the garbage collector 2 us a response.
        del self._parser
        return Response(self.status, self.headers, self.content)

    def feed(self, data: bytes) -> None:
        """Parse the next bytes; raise ``HttpParserError``."""
        count = len(self._chunks)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            raise httptools.HttpParserError("expected no other protocol") from error
        self._size = self._size + len(data) if len(self._chunks) == count else 0
        if self._size > MAX_HEAD and not self.is_complete:
            raise httptools.HttpParserError(f"expected a head, and trailers, of at most {MAX_HEAD} bytes")

    def rest(self) -> memoryview | None:
        """Return the memory for the rest of a long body whose length is known: it needs no parser.

        The content is then this memory, which is not copied again.
        """
        length = self.headers.get("content-length", "")
        if self.is_complete or not self.is_final or "transfer-encoding" in self.headers or not length.isdecimal():
            return None
        if int(length) <= READ:
            return None
        if int(length) > sys.maxsize:
            raise MemoryError
        content = np.empty(int(length), np.uint8).data
        begun = b"".join(self._chunks)
        content[: len(begun)] = begun
        self.content = content
        return content[len(begun) :]

    @property
    def has_content(self) -> bool:
        """Whether ``take`` returns any."""
        return bool(self._chunks)

    def take(self) -> bytes:
        """Return the content that has come since the last time."""
        content = b"".join(self._chunks)
        self._chunks.clear()
        return content

    def end(self) -> None:
        """End the response, since the connection is closed; raise ``ConnectionResetError`` if it lacks bytes."""
        if not self.is_final or not {"content-length", "transfer-encoding"}.isdisjoint(self.headers):
            raise self.lost()
        self.on_message_complete()

    def lost(self) -> ConnectionResetError:
        """Return the error for a connection that was closed before the end."""
        error = ConnectionResetError if self._size or self.is_final else NoResponse
        return error("the server closed it")

    def on_message_begin(self) -> None:
        """Refuse a second response to the request."""
        if self.is_complete:
            raise httptools.HttpParserError("expected one response")

    def on_headers_complete(self) -> None:
        """Store the head, but not that of an informational response, such as 103: another one follows."""
        self.status, self.keeps_alive = self._parser.get_status_code(), self._parser.should_keep_alive()
        self.is_final = self.status >= 200  # noqa: PLR2004 - the first final status
        if self.is_final:
            fields = {name.lower(): value for name, value in self._fields.items()}
            self.headers = {name: fields[key].decode("latin-1") for key, name in HEADERS.items() if key in fields}
        self._fields.clear()

    def on_message_complete(self) -> None:
        """Join the content of the final response."""
        if self.is_final:
            self.content = b"".join(self._chunks)
            self.is_complete = True


@lru_cache(maxsize=256)
def _content_lines(content: Content) -> str:
    return _lines(content.headers())


def _lines(headers: Mapping[str, str]) -> str:
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items())


def _proxy_headers(proxy: Url) -> dict[str, str]:
    return {"Proxy-Authorization": basic(proxy.userinfo)} if proxy.userinfo else {}
