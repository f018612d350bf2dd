"""Calls by httpx: on a client or a transport of the caller, or through a proxy that only httpx can use."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import cached_property, partial
from typing import Any

import httpx

from pullback.addresses import Address
from pullback.calls import Call
from pullback.errors import BadArgument, PullbackError
from pullback.failures import cannot_connect, failure
from pullback.http1 import IDLE_S, trace_headers
from pullback.limits import Limit
from pullback.responses import Response
from pullback.transport import NextChunk, Transport, complete


class Httpx(Transport):
    """What both halves share."""

    def __init__(self, address: Address) -> None:
        """Set the address."""
        self._address = address

    async def exchange(self, call: Call[Any], limit: Limit) -> Response:
        """Send a call and return the response."""
        async with self.stream(call, limit) as (start, next_chunk):
            return await complete(start, next_chunk)

    def abandon(self) -> None:
        """Close nothing: the connections are those of httpx."""

    def _options(self, call: Call[Any], limit: Limit) -> dict[str, Any]:
        """Return the arguments of a request, without content and timeout."""
        own = {**call.content.headers(), **dict(call.headers), **limit.headers()}
        headers = {**self._address.headers, **own, **trace_headers(self._address.headers)}
        url = f"{str(self._address.location).rstrip('/')}{call.path}"
        return {"method": call.method, "url": url, "headers": headers}

    def _timeout(self, limit: Limit) -> dict[str, dict[str, float | None]]:
        """Return the extension with the longest waits of a request."""
        wait = limit.wait(self._address.timeout)
        return {"timeout": {"connect": self._address.connect_seconds(limit), "read": wait, "write": wait, "pool": None}}

    def _settings(self) -> dict[str, Any]:
        """Return the arguments of a transport of httpx for the proxy of the environment."""
        limits = httpx.Limits(max_connections=None, keepalive_expiry=IDLE_S)
        return {"verify": self._address.tls_context() or False, "limits": limits, "proxy": self._address.proxy}

    @contextmanager
    def _failures(self, limit: Limit) -> Generator[None]:
        """Turn the errors of httpx into those of the client."""
        try:
            yield
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise _failure(self._address, error, limit) from error


class BlockingHttpx(Httpx):
    """Calls that block the thread; the limit of a call limits each wait."""

    def __init__(
        self, address: Address, transport: httpx.BaseTransport | None, http_client: httpx.Client | None
    ) -> None:
        """Use a client or a transport of the caller, if there is one."""
        super().__init__(address)
        self._transport, self._http_client = transport, http_client

    @asynccontextmanager
    async def stream(self, call: Call[Any], limit: Limit) -> AsyncGenerator[tuple[Response, NextChunk], None]:
        """Send a call; yield the response without its content, and the function that receives that."""
        with self._failures(limit):
            content, options = call.body and call.body.content, self._options(call, limit)
            if self._http_client is None or limit.seconds is not None:
                options["extensions"] = self._timeout(limit)
            if self._http.is_closed:
                raise self._address.client_closed()
            with self._http.stream(content=content, **options) as response:
                start = Response(response.status_code, response.headers, b"")
                yield start, partial(self._next, response.iter_bytes(), limit)

    async def _next(self, chunks: Iterator[bytes], limit: Limit) -> bytes | None:
        limit.wait(None)
        return next(chunks, None)

    async def close(self) -> None:
        """Close the connections, but not those of the caller."""
        if "_http" in self.__dict__ and self._http_client is None:
            self._http.close()

    @cached_property
    def _http(self) -> httpx.Client:
        if self._http_client is not None:
            return self._http_client
        return httpx.Client(transport=self._transport or httpx.HTTPTransport(**self._settings()))


class AsyncioHttpx(Httpx):
    """Calls that suspend the task; the limit of a call limits all of it."""

    def __init__(
        self, address: Address, transport: httpx.AsyncBaseTransport | None, http_client: httpx.AsyncClient | None
    ) -> None:
        """Use a client or a transport of the caller, if there is one."""
        super().__init__(address)
        self._transport, self._http_client = transport, http_client

    @asynccontextmanager
    async def stream(self, call: Call[Any], limit: Limit) -> AsyncGenerator[tuple[Response, NextChunk], None]:
        """Send a call; yield the response without its content, and the function that receives that."""
        with self._failures(limit):
            content, options = call.body and call.body.async_content, self._options(call, limit)
            if self._http_client is None:
                options["extensions"] = self._timeout(Limit(None))
            if self._http.is_closed:
                raise self._address.client_closed()
            async with AsyncExitStack() as stack:
                # A limit around the whole would also cancel the code of the caller, which runs between the chunks.
                async with asyncio.timeout(limit.wait(None)):
                    sent = self._http.stream(content=content, **options)
                    response = await stack.enter_async_context(sent)
                start = Response(response.status_code, response.headers, b"")
                yield start, partial(self._next, response.aiter_bytes(), limit)

    async def _next(self, chunks: AsyncIterator[bytes], limit: Limit) -> bytes | None:
        async with asyncio.timeout(limit.wait(None)):
            return await anext(chunks, None)

    async def close(self) -> None:
        """Close the connections, but not those of the caller."""
        if "_http" in self.__dict__ and self._http_client is None:
            await self._http.aclose()

    @cached_property
    def _http(self) -> httpx.AsyncClient:
        if self._http_client is not None:
            return self._http_client
        return httpx.AsyncClient(transport=self._transport or httpx.AsyncHTTPTransport(**self._settings()))


def _failure(address: Address, error: Exception, limit: Limit) -> PullbackError:
    """Return the error for a call that got no response."""
    match error:
        case httpx.ConnectError() | httpx.ConnectTimeout() | httpx.ProxyError():
            return cannot_connect(address, error, limit)
        case httpx.TimeoutException():
            return address.timed_out(limit)
        case httpx.UnsupportedProtocol() | httpx.InvalidURL() | httpx.LocalProtocolError():
            return BadArgument(f"{address.public_url}: {error}")
        case httpx.RemoteProtocolError() if "disconnected" in str(error) or "closed" in str(error):
            return address.connection_lost()
        case httpx.RemoteProtocolError() | httpx.DecodingError():
            return address.not_pullback("invalid HTTP")
        case _:
            return failure(address, error, limit)
