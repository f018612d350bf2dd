"""A transport for httpx that gives every connection a pool of its own."""

from collections.abc import AsyncIterator
from typing import cast

import httpx

from pullback.addresses import Address

LIMITS = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=30.0)


class Spread(httpx.AsyncBaseTransport):
    """Sends requests over connections that are idle, or new.

    httpx has one pool of connections, whose work for a request grows with the square of their number. Here each
    connection is a pool of one.
    """

    def __init__(self, address: Address) -> None:
        """Make the TLS context, which takes long, once; without TLS there is nothing to verify."""
        self._tls = httpx.create_ssl_context() if address.location.scheme == "https" else False
        self._path = address.socket_path
        self._idle: list[httpx.AsyncHTTPTransport] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request."""
        transport = self._idle.pop() if self._idle else self._new()
        try:
            response = await transport.handle_async_request(request)
        except BaseException:
            await transport.aclose()
            raise
        response.stream = Returning(cast(httpx.AsyncByteStream, response.stream), transport, self._idle)
        return response

    def _new(self) -> httpx.AsyncHTTPTransport:
        return httpx.AsyncHTTPTransport(verify=self._tls, limits=LIMITS, uds=self._path)

    async def aclose(self) -> None:
        """Close the idle connections."""
        while self._idle:
            await self._idle.pop().aclose()


class Returning(httpx.AsyncByteStream):
    """The content of a response; when it is closed, its connection becomes idle."""

    def __init__(
        self, stream: httpx.AsyncByteStream, transport: httpx.AsyncHTTPTransport, idle: list[httpx.AsyncHTTPTransport]
    ) -> None:
        """Take over the stream and the transport that it comes from."""
        self._stream, self._transport, self._idle = stream, transport, idle

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            yield chunk

    async def aclose(self) -> None:
        """Close the stream."""
        await self._stream.aclose()
        self._idle.append(self._transport)
