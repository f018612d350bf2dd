"""A transport for httpx in which the time that is left for a call limits every wait, and so the whole call."""

import ssl
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore
import httpx

from pullback.addresses import CONNECT_S, Address
from pullback.call_timeout import seconds_of
from pullback.http1 import IDLE_S
from pullback.lookup import look_up, shares, until

ERRORS = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.ProxyError,
    httpcore.UnsupportedProtocol,
)
PIECE = 1 << 16
"""How many bytes are sent within one wait."""


class LimitedTransport(httpx.BaseTransport):
    """A pool of connections for httpx, direct or through a proxy."""

    def __init__(self, address: Address) -> None:
        """Connect to nothing yet."""
        proxy = address.httpx_proxy()
        through = None if proxy is None else httpcore.Proxy(str(proxy.url), proxy.raw_auth, proxy.headers.raw)
        self._pool = httpcore.ConnectionPool(
            ssl_context=address.tls_context(),
            proxy=through,
            uds=address.socket_path,
            max_connections=None,
            # Without a proxy it sends streams only, each on a new connection, which the server cannot have closed.
            max_keepalive_connections=0 if proxy is None else None,
            keepalive_expiry=IDLE_S,
            network_backend=LimitedBackend(),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request."""
        url = httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        headers, content = request.headers.raw, request.stream
        with _errors_of_httpx():
            response = self._pool.handle_request(
                httpcore.Request(request.method, url, headers=headers, content=content, extensions=request.extensions)
            )
        return httpx.Response(response.status, headers=response.headers, stream=Content(response))

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()


class Content(httpx.SyncByteStream):
    """The content of a response, as it arrives."""

    def __init__(self, response: httpcore.Response) -> None:
        """Take over the response."""
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        with _errors_of_httpx():
            yield from self._response.iter_stream()

    def close(self) -> None:
        """Release the connection."""
        with _errors_of_httpx():
            self._response.close()


@contextmanager
def _errors_of_httpx() -> Generator[None]:
    """Turn the errors of httpcore into those of httpx, which have the same names."""
    try:
        yield
    except ERRORS as error:
        raise getattr(httpx, type(error).__name__)(str(error)) from error


class LimitedBackend(httpcore.NetworkBackend):
    """Connects within the time that is left, to one of the addresses of a host."""

    def __init__(self) -> None:
        """Connect as httpcore does."""
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to a host."""
        wait = seconds_of(timeout)
        end = time.monotonic() + (CONNECT_S if wait is None else wait)
        failed: Exception = httpcore.ConnectError("no address")
        try:
            for address, seconds in shares(look_up(host, port).result(until(end)), end):
                ip, number = address.address[:2]
                try:
                    opened = self._backend.connect_tcp(ip, number, seconds, local_address, socket_options or ())
                    return LimitedStream(opened)
                except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                    failed = error
        except TimeoutError:
            failed = httpcore.ConnectTimeout("no connection in time")
        except (OSError, UnicodeError) as error:
            failed = httpcore.ConnectError(str(error))
        raise failed

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None
    ) -> httpcore.NetworkStream:
        """Connect to a Unix socket."""
        return LimitedStream(self._backend.connect_unix_socket(path, seconds_of(timeout), socket_options))

    def sleep(self, seconds: float) -> None:
        """Wait before httpcore connects again, which it never does here."""
        self._backend.sleep(seconds)


class LimitedStream(httpcore.NetworkStream):
    """A connection whose every wait ends with the limit of the call."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        """Take over a connection."""
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Receive some bytes."""
        return self._stream.read(max_bytes, seconds_of(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send bytes."""
        for start in range(0, len(buffer), PIECE):
            self._stream.write(buffer[start : start + PIECE], seconds_of(timeout))

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """Start TLS."""
        return LimitedStream(self._stream.start_tls(ssl_context, server_hostname, seconds_of(timeout)))

    def get_extra_info(self, info: str) -> Any:
        """Return what httpcore asks about the socket."""
        return self._stream.get_extra_info(info)
