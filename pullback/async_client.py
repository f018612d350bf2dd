"""The asyncio client.

::

    async with pullback.AsyncClient() as client:
        square = client.op("square")
        dx = (await square.vjp({"x": x}, cotangents={"y": dy})).gradients["x"]
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import httpx

from pullback import addresses, calls, reading
from pullback.async_op import AsyncOp
from pullback.calls import Call, CheckOptions
from pullback.catalogue import OpSummary
from pullback.errors import BadArgument, DeadlinePassed, TimedOut
from pullback.failures import failure
from pullback.limits import DEFAULT_RETRIES, Limit, Retries
from pullback.reports import Event
from pullback.responses import Response
from pullback.sessions import Session

T = TypeVar("T")

DEFAULT_CONCURRENCY = 64
"""The fastest number for small calls to a service on the same machine, as measured."""


class AsyncClient:
    """A client that reuses its connections to a service; ``close`` it, or use it as a context manager.

    ``url`` defaults to ``PULLBACK_URL``, then to http://127.0.0.1:8000; that of a Unix socket is http+unix:// and its
    path, percent-encoded. ``api_key``, for a service that needs one, defaults to ``PULLBACK_KEY``. The client sends
    ``headers`` with every request. ``timeout`` limits every network wait, in seconds; ``None`` and infinity set no
    limit. After a 429 or 503 with a ``Retry-After``, the client sends a call again up to ``retries`` times, with at
    most half a minute of pauses. On failure every method raises a ``PullbackError``.

    The ``deadline`` of a call ends it, whatever the network does: at the latest a tenth of it, and half a second, after
    it, so that the service's own answer can arrive.

    At most ``concurrency`` calls are sent at a time. The others wait in a queue of this client, where only a deadline
    limits them, so that ``asyncio.gather`` takes any number of calls.

    Requests are sent by ``http_client``, which then has its own timeout and stays open, or by an httpx client with this
    ``transport``. Without them, and without a proxy in the environment, the client opens its own connections, which
    take an eighth of the CPU. If the server has closed a connection that was kept, before the first byte of the
    response, the client sends the call once more, on a new connection: the calls of an op and of the catalogue compute
    their results from the request alone. It repeats no stream of checks, and no call through a proxy or on a client of
    yours.

    A copy, as made by pickle, and a client that is used in another event loop have new connections.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = addresses.DEFAULT_TIMEOUT,
        retries: int = DEFAULT_RETRIES,
        concurrency: int = DEFAULT_CONCURRENCY,
        transport: httpx.AsyncBaseTransport | None = None,
        http_client: httpx.AsyncClient | None = None,
    ) -> None:
        """Set the address; this sends nothing."""
        if concurrency < 1:
            raise BadArgument(f"concurrency: expected at least 1, got {concurrency}")
        has_own = transport is not None or http_client is not None
        self._address = addresses.address(url, timeout, api_key, headers, use_proxy=not has_own)
        self._retries, self._concurrency = retries, concurrency
        self._transport, self._http_client = transport, http_client
        self._session: Session | None = None
        self._is_closed = False
        self._copy = partial(
            type(self),
            self.url,
            api_key=api_key,
            headers=headers,
            timeout=timeout,
            retries=retries,
            concurrency=concurrency,
            transport=transport,
            http_client=http_client,
        )

    @property
    def url(self) -> str:
        """The URL of the service."""
        return self._address.url

    async def ops(self) -> list[OpSummary]:
        """Return a summary of every op."""
        return await self.send(calls.ops())

    def op(self, name: str) -> AsyncOp:
        """Return an op by name; this sends nothing, so an unknown name shows at the first call."""
        return AsyncOp(self, name)

    def checks(self, ops: Iterable[str] | None = None, **options: Unpack[CheckOptions]) -> AsyncGenerator[Event, None]:
        """Check the gradients of these ops, by default of all; yield the events as they arrive, ``Summary`` last.

        The first event sends the request. Closing the iterator closes the connection, and the service then stops the
        work. Raises ``ConnectionLost`` when the events end without a summary.
        """
        return self._events(calls.checks(ops, options))

    async def send(self, call: Call[T], limit: Limit | None = None) -> T:
        """Send a call and return its result; ``limit`` is that of the call, if it has started."""
        limit, session = limit or Limit(call.deadline), self._open()
        waited = await self._take_turn(session, limit)
        try:
            return await self._send(session, call, limit)
        except (TimedOut, DeadlinePassed) as error:
            if limit.seconds is not None and waited > limit.seconds / 2:
                raise self._queued_too_long(waited, limit) from error
            raise
        finally:
            session.turns.release()

    async def close(self) -> None:
        """Close the connections."""
        self._is_closed = True
        if self._session is not None:
            await self._session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __reduce__(self) -> tuple[Callable[[], Self], tuple[()]]:
        return self._copy, ()

    def __repr__(self) -> str:
        return f"pullback.AsyncClient({self._address.public_url!r})"

    def _open(self) -> Session:
        if self._is_closed:
            raise self._address.client_closed()
        if self._session is None or not self._session.is_current:
            if self._session is not None:
                self._session.abandon()
            self._session = Session(self._address, self._concurrency, self._transport, self._http_client)
        return self._session

    async def _take_turn(self, session: Session, limit: Limit) -> float:
        """Wait until fewer than ``concurrency`` calls are sent; return the seconds."""
        start = time.monotonic()
        if limit.left is None:
            await session.turns.acquire()
            return 0.0
        try:
            async with asyncio.timeout(limit.left):
                await session.turns.acquire()
        except TimeoutError:
            raise self._queued_too_long(time.monotonic() - start, limit) from None
        return time.monotonic() - start

    def _queued_too_long(self, waited: float, limit: Limit) -> TimedOut:
        return TimedOut(
            f"{waited:.3g} s of the deadline of {limit.seconds:g} s passed in this client's own queue, where a call "
            f"waits while {self._concurrency} others are in progress (concurrency): start fewer calls at a time, or "
            "allow a longer deadline"
        )

    async def _send(self, session: Session, call: Call[T], limit: Limit) -> T:
        retries = Retries(self._retries, limit)
        while True:
            response = await self._exchange(session, call, limit)
            pause = retries.pause(response)
            if pause is None:
                return reading.result(self._address, call, response)
            await asyncio.sleep(pause)

    async def _exchange(self, session: Session, call: Call[Any], limit: Limit) -> Response:
        if session.connections is not None:
            return await session.connections.exchange(call, limit)
        try:
            async with asyncio.timeout(limit.wait(None)), session.stream(call, limit) as response:
                content = bytearray()
                async for chunk in response.aiter_bytes():
                    content += chunk
                return Response(response.status_code, response.headers, content)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise failure(self._address, error, limit) from error

    async def _events(self, call: Call[None]) -> AsyncGenerator[Event, None]:
        limit, stream = Limit(call.deadline), reading.Stream(self._address)
        try:
            async with self._open_stream(call, limit) as response:
                chunks = response.aiter_bytes()
                # A limit around the whole would also cancel the code of the caller, which runs between the events.
                while (chunk := await self._next(chunks, limit)) is not None:
                    for event in stream.feed(chunk):
                        start = time.monotonic()
                        yield event
                        limit.extend(time.monotonic() - start)
        except (httpx.HTTPError, TimeoutError) as error:
            raise failure(self._address, error, limit) from error
        stream.end()

    async def _next(self, chunks: AsyncIterator[bytes], limit: Limit) -> bytes | None:
        async with asyncio.timeout(limit.wait(None)):
            return await anext(chunks, None)

    @asynccontextmanager
    async def _open_stream(self, call: Call[None], limit: Limit) -> AsyncGenerator[httpx.Response, None]:
        """Send a call whose response is a stream; yield the response once it starts."""
        retries = Retries(self._retries, limit)
        while True:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(limit.wait(None)):
                    response = await stack.enter_async_context(self._open().stream(call, limit))
                    content = b"" if response.is_success else await response.aread()
                start = Response(response.status_code, response.headers, content)
                pause = retries.pause(start)
                if pause is None:
                    reading.check_stream(self._address, start)
                    yield response
                    return
            await asyncio.sleep(pause)
