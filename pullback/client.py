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
from pullback.call_timeout import timeouts
from pullback.calls import Call, CheckOptions
from pullback.catalogue import OpSummary
from pullback.connections import Connections
from pullback.failures import failure
from pullback.limits import DEFAULT_RETRIES, Limit, Retries
from pullback.op import Op
from pullback.reports import Event
from pullback.responses import Response

T = TypeVar("T")


class Client:
    """A client that reuses its connections to a service; ``close`` it, or use it as a context manager.

    ``url`` defaults to ``PULLBACK_URL``, then to http://127.0.0.1:8000; that of a Unix socket is http+unix:// and its
    path, percent-encoded. ``api_key``, for a service that needs one, defaults to ``PULLBACK_KEY``. The client sends
    ``headers`` with every request. ``timeout`` limits every network wait, in seconds; ``None`` and infinity set no
    limit. After a 429 or 503 with a ``Retry-After``, the client sends a call again up to ``retries`` times, with at
    most half a minute of pauses. On failure every method raises a ``PullbackError``.

    The ``deadline`` of a call ends it, whatever the network does: at the latest a tenth of it, and half a second, after
    it, so that the service's own answer can arrive.

    Requests are sent by ``http_client``, which then has its own timeout and stays open, or by an httpx client with this
    ``transport``; with these two, a deadline limits each wait, and a response that arrives byte by byte may take
    longer. Without them, and without a proxy in the environment, the client opens its own connections, which take a
    fifth of the CPU. If the server has closed a connection that was kept, before the first byte of the response, the
    client sends the call once more, on a new connection: the calls of an op and of the catalogue compute their results
    from the request alone. It repeats no stream of checks, and no call through a proxy or on a client of yours.

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
        has_own = transport is not None or http_client is not None
        self._address = addresses.address(url, timeout, api_key, headers, use_proxy=not has_own)
        self._retries = retries
        self._transport, self._http_client = transport, http_client
        self._http: httpx.Client | None = None
        self._process = os.getpid()
        is_direct = not has_own and self._address.proxy is None
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

    def send(self, call: Call[T], limit: Limit | None = None) -> T:
        """Send a call and return its result; ``limit`` is that of the call, if it has started."""
        limit = limit or Limit(call.deadline)
        retries = Retries(self._retries, limit)
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
                    limit.wait(None)
                return Response(response.status_code, response.headers, content)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise failure(self._address, error, limit) from error

    def _events(self, call: Call[None]) -> Generator[Event, None, None]:
        if self._is_closed:
            raise self._address.client_closed()
        limit, stream = Limit(call.deadline), reading.Stream(self._address)
        try:
            with self._open_stream(call, limit) as response:
                for chunk in response.iter_bytes():
                    for event in stream.feed(chunk):
                        start = time.monotonic()
                        yield event
                        limit.extend(time.monotonic() - start)
                    limit.wait(None)
        except (httpx.HTTPError, TimeoutError) as error:
            raise failure(self._address, error, limit) from error
        stream.end()

    @contextmanager
    def _open_stream(self, call: Call[None], limit: Limit) -> Generator[httpx.Response, None, None]:
        """Send a call whose response is a stream; yield the response once it starts."""
        retries = Retries(self._retries, limit)
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
        http, options = self._open(), self._address.request_options(call)
        options["headers"].update(limit.headers())
        if self._http_client is None or limit.seconds is not None:
            options["extensions"] = {"timeout": timeouts(self._address, limit)}
        with http.stream(call.method, content=content, **options) as response:
            yield response

    def _open(self) -> httpx.Client:
        if self._http_client is not None:
            return self._http_client
        if self._http is None or self._process != os.getpid():
            # The parent of a process that was forked still uses its connections.
            self._http = httpx.Client(transport=self._transport or self._new_transport())
            self._process = os.getpid()
        return self._http

    def _new_transport(self) -> httpx.BaseTransport:
        # httpcore takes a while to import, and a client without streams and without a proxy does not need it.
        from pullback.limited_transport import LimitedTransport  # noqa: PLC0415

        return LimitedTransport(self._address)
