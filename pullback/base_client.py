"""What both clients do: retries, deadlines and streams of events, over a network that blocks or one for asyncio."""

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Generic, Self, TypeVar

import httpx

from pullback import addresses, reading
from pullback.calls import Call
from pullback.failures import failure
from pullback.limits import Limit, Retries
from pullback.network import Network, NextChunk
from pullback.reports import Event
from pullback.responses import Response

T = TypeVar("T")
AnyNetwork = TypeVar("AnyNetwork", bound=Network)


class BaseClient(ABC, Generic[AnyNetwork]):
    """A client whose coroutines send calls."""

    def __init__(
        self,
        url: str | None,
        *,
        api_key: str | None,
        headers: Mapping[str, str] | None,
        timeout: float | None,
        retries: int,
        **options: Any,
    ) -> None:
        """Set the address; ``options`` are further arguments of the client, for its copies."""
        has_own = options["transport"] is not None or options["http_client"] is not None
        self._address = addresses.address(url, timeout, api_key, headers, use_proxy=not has_own)
        self._retries = retries
        self._network: AnyNetwork | None = None
        self._is_closed = False
        options = {"api_key": api_key, "headers": headers, "timeout": timeout, "retries": retries, **options}
        self._copy = partial(type(self), self.url, **options)

    @property
    def url(self) -> str:
        """The URL of the service."""
        return self._address.url

    @property
    def timeout(self) -> float | None:
        """The limit of each wait for the network, in seconds."""
        return self._address.timeout

    def __reduce__(self) -> tuple[Callable[[], Self], tuple[()]]:
        return self._copy, ()

    def __repr__(self) -> str:
        return f"pullback.{type(self).__name__}({self._address.public_url!r})"

    @abstractmethod
    def _new_network(self) -> AnyNetwork:
        """Return a network for this process or the running event loop."""

    def _open(self) -> AnyNetwork:
        if self._is_closed:
            raise self._address.client_closed()
        network = self._network
        if network is None or not network.is_current:
            if network is not None:
                network.abandon()
            network = self._network = self._new_network()
        return network

    async def _close(self) -> None:
        self._is_closed = True
        if self._network is not None:
            await self._network.close()

    async def _send(self, network: Network, call: Call[T], limit: Limit) -> T:
        retries, connections = Retries(self._retries, limit), network.connections
        exchange = partial(self._exchange_by_httpx, network) if connections is None else connections.exchange
        while True:
            response = await exchange(call, limit)
            pause = retries.pause(response)
            if pause is None:
                return reading.result(self._address, call, response)
            await network.sleep(pause)

    async def _exchange_by_httpx(self, network: Network, call: Call[Any], limit: Limit) -> Response:
        try:
            async with network.stream(call, limit) as (start, next_chunk):
                return await _complete(start, next_chunk)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            raise failure(self._address, error, limit) from error

    async def _events(self, call: Call[None]) -> AsyncGenerator[Event, None]:
        """Send a call whose response is a stream, and yield its events; the caller's time does not count."""
        limit, stream = Limit(call.deadline), reading.Stream(self._address)
        try:
            async with self._open_stream(call, limit) as next_chunk:
                while (chunk := await next_chunk()) is not None:
                    for event in stream.feed(chunk):
                        start = time.monotonic()
                        yield event
                        limit.extend(time.monotonic() - start)
        except (httpx.HTTPError, TimeoutError) as error:
            raise failure(self._address, error, limit) from error
        stream.end()

    @asynccontextmanager
    async def _open_stream(self, call: Call[None], limit: Limit) -> AsyncGenerator[NextChunk, None]:
        network, retries = self._open(), Retries(self._retries, limit)
        while True:
            async with network.stream(call, limit) as (start, next_chunk):
                is_stream = start.status in reading.SUCCESS
                response = start if is_stream else await _complete(start, next_chunk)
                pause = retries.pause(response)
                if pause is None:
                    reading.check_stream(self._address, response)
                    yield next_chunk
                    return
            await network.sleep(pause)


async def _complete(start: Response, next_chunk: NextChunk) -> Response:
    content = bytearray()
    while (chunk := await next_chunk()) is not None:
        content += chunk
    return start._replace(content=content)
