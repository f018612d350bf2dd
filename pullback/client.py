"""The client.

::

    with pullback.Client() as client:
        square = client.op("square")
        dx = square.vjp({"x": x}, cotangents={"y": dy}).gradients["x"]
"""

import os
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import httpx

from pullback import addresses, calls, reading
from pullback.calls import Call, CheckOptions
from pullback.catalogue import OpSummary
from pullback.connections import Connections
from pullback.limits import DEFAULT_RETRIES, Limit, Retries
from pullback.op import Op
from pullback.reports import Event
from pullback.responses import Response

T = TypeVar("T")


class Client:
    """A client that reuses its connections to a service; ``close`` it, or use it as a context manager.

    ``url`` defaults to ``PULLBACK_URL``, then to http://127.0.0.1:8000; that of a Unix socket is http+unix:// and its
    path, percent-encoded. ``api_key``, for a service that needs one, defaults to ``PULLBACK_KEY``. The client sends
    ``headers`` with every request. ``timeout`` limits every network wait, in seconds; ``None`` sets no limit. After a
    429 or 503 with a ``Retry-After``, the client sends a call again up to ``retries`` times, with at most half a minute
    of pauses. On failure every method raises a ``PullbackError``.

    Requests are sent by ``http_client``, which then has its own timeout and stays open, or by an httpx client with this
    ``transport``. Without them, and without a proxy in the environment, the client opens its own connections, which
    take a fifth of the CPU.

    Threads may share a client. A copy, as made by pickle, and the child of a fork have connections of their own.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = addresses.DEFAULT_TIMEOUT,
        retries: int = DEFAULT_RETRIES,
        transport: httpx.BaseTransport | None = None,
        http_client: httpx.Client | None = None,
    ) -> None:
        """Set the address; this sends nothing."""
        self._address = addresses.address(url, timeout, api_key, headers)
        self._retries = retries
        self._transport, self._http_client = transport, http_client
        self._http: httpx.Client | None = None
        self._process = os.getpid()
        is_direct = transport is None and http_client is None and not self._address.has_proxy
        self._connections = Connections(self._address) if is_direct else None
        self._is_closed = False
        options = {"api_key": api_key, "headers": headers, "timeout": timeout, "retries": retries}
        self._copy = partial(type(self), self.url, **options, transport=transport, http_client=http_client)

    @property
    def url(self) -> str:
        """The URL of the service."""
        return self._address.url

    def ops(self) -> list[OpSummary]:
        """Return a summary of every op."""
        return self.send(calls.ops())

    def op(self, name: str) -> Op:
        """Return an op by name; this sends nothing, so an unknown name shows at the first call."""
        return Op(self, name)

    def checks(self, ops: Iterable[str] | None = None, **options: Unpack[CheckOptions]) -> Generator[Event, None, None]:
        """Check the gradients of these ops, by default of all; yield the events as they arrive, ``Summary`` last.

        The first event sends the request. Closing the iterator closes the connection, and the service then stops the
        work. Raises ``ConnectionLost`` when the events end without a summary.
        """
        return self._events(calls.checks(ops, options))

    def send(self, call: Call[T]) -> T:
        """Send a call and return its result."""
        limit, retries = Limit(call.deadline), Retries(self._retries, call.deadline)
        while True:
            response = self._exchange(call, limit)
            pause = retries.pause(response)
            if pause is None:
                return reading.result(self._address, call, response)
            time.sleep(pause)

    def close(self) -> None:
        """Close the connections."""
        self._is_closed = True
        if self._connections is not None:
            self._connections.close()
        if self._http is not None:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[[], Self], tuple[()]]:
        return self._copy, ()

    def __repr__(self) -> str:
        return f"pullback.Client({self._address.public_url!r})"

    def _exchange(self, call: Call[Any], limit: Limit) -> Response:
        if self._is_closed:
            raise self._address.client_closed()
        if self._connections is not None:
            return self._connections.exchange(call, limit)
        try:
            with self._stream(call, limit) as response:
                content = bytearray()
                for chunk in response.iter_bytes():
                    content += chunk
                return Response(response.status_code, response.headers, content)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._address.failure(error, limit) from error

    def _events(self, call: Call[None]) -> Generator[Event, None, None]:
        if self._is_closed:
            raise self._address.client_closed()
        limit, stream = Limit(call.deadline), reading.Stream(self._address)
        try:
            with self._open_stream(call, limit) as response:
                for chunk in response.iter_bytes():
                    yield from stream.feed(chunk)
        except httpx.HTTPError as error:
            raise self._address.failure(error, limit) from error
        stream.end()

    @contextmanager
    def _open_stream(self, call: Call[None], limit: Limit) -> Generator[httpx.Response, None, None]:
        """Send a call whose response is a stream; yield the response once it starts."""
        retries = Retries(self._retries, call.deadline)
        while True:
            with self._stream(call, limit) as response:
                content = b"" if response.is_success else response.read()
                start = Response(response.status_code, response.headers, content)
                pause = retries.pause(start)
                if pause is None:
                    reading.check_stream(self._address, start)
                    yield response
                    return
            time.sleep(pause)

    @contextmanager
    def _stream(self, call: Call[Any], limit: Limit) -> Generator[httpx.Response, None, None]:
        """Send a call by httpx; yield the response before its content is read."""
        content = None if call.body is None else call.body.content
        options = self._address.request_options(call, limit)
        with self._open().stream(call.method, content=content, **options) as response:
            yield response

    def _open(self) -> httpx.Client:
        if self._http_client is not None:
            return self._http_client
        if self._http is None or self._process != os.getpid():
            # The parent of a process that was forked still uses its connections.
            path = self._address.socket_path
            transport = self._transport or (httpx.HTTPTransport(uds=path) if path else None)
            self._http = httpx.Client(transport=transport, **self._address.options())
            self._process = os.getpid()
        return self._http
