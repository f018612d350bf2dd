"""The connections of the asyncio client, and the turns of its calls, in one event loop."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any

import httpx

from pullback.addresses import Address
from pullback.async_connections import AsyncConnections
from pullback.calls import Call
from pullback.http1 import IDLE_S
from pullback.limits import Limit


class Session:
    """What a client has in one event loop."""

    def __init__(
        self,
        address: Address,
        concurrency: int,
        transport: httpx.AsyncBaseTransport | None,
        http_client: httpx.AsyncClient | None,
    ) -> None:
        """Belong to the event loop that runs."""
        self.turns = asyncio.Semaphore(concurrency)
        self._address, self._transport, self._http_client = address, transport, http_client
        self._loop = asyncio.get_running_loop()
        is_direct = transport is None and http_client is None and address.proxy is None
        self.connections = AsyncConnections(address) if is_direct else None

    @property
    def is_current(self) -> bool:
        """Whether the event loop that runs is that of the session."""
        return self._loop is asyncio.get_running_loop()

    @asynccontextmanager
    async def stream(self, call: Call[Any], limit: Limit) -> AsyncGenerator[httpx.Response, None]:
        """Send a call by httpx; yield the response before its content is read. The caller limits the time."""
        content = None if call.body is None else call.body.async_content
        options = self._address.request_options(call)
        options["headers"].update(limit.headers())
        if self._http_client is None:
            options["extensions"] = {"timeout": self._address.timeouts()}
        async with self._http.stream(call.method, content=content, **options) as response:
            yield response

    async def close(self) -> None:
        """Close the connections, in their event loop."""
        if not self.is_current:
            self.abandon()
            return
        if self.connections is not None:
            self.connections.close()
        if "_http" in self.__dict__ and self._http_client is None:
            await self._http.aclose()
        # The event loop closes the sockets after this.
        await asyncio.sleep(0)

    def abandon(self) -> None:
        """Close the connections, from another event loop; one that has ended can close none."""
        if self.connections is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.connections.close)

    @cached_property
    def _http(self) -> httpx.AsyncClient:
        if self._http_client is not None:
            return self._http_client
        return httpx.AsyncClient(transport=self._transport or self._new_transport())

    def _new_transport(self) -> httpx.AsyncHTTPTransport:
        address, proxy = self._address, self._address.httpx_proxy()
        # Without a proxy it sends streams only, each on a new connection, which the server cannot have closed.
        limits = httpx.Limits(
            max_connections=None,
            max_keepalive_connections=0 if proxy is None else None,
            keepalive_expiry=IDLE_S,
        )
        tls = address.tls_context() or False
        return httpx.AsyncHTTPTransport(verify=tls, limits=limits, proxy=proxy, uds=address.socket_path)
