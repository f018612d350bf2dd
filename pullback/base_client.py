"""What both clients do: retries, deadlines and streams of events, over a transport that blocks or one for asyncio."""

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Self, TypeVar

from pullback import addresses, reading
from pullback.calls import Call
from pullback.limits import Limit, Retries, at_least
from pullback.reports import Event
from pullback.transport import NextChunk, Transport, complete

T = TypeVar("T")


class BaseClient(ABC):
    """A client whose coroutines send calls."""

    def __init__(
        self,
        url: str | None,
        *,
        api_key: str | None,
        headers: Mapping[str, str] | None,
        timeout: float | None,
        retries: int,
        require_verdict: bool,
        **options: Any,
    ) -> None:
        """Set the address; ``options`` are further arguments of the client, for its copies."""
        if require_verdict:
            headers = {**(headers or {}), "Require-Verdict": "pass"}
        has_own = options["transport"] is not None or options["http_client"] is not None
        self._address = addresses.address(url, timeout, api_key, headers, use_proxy=not has_own)
        self._retries = at_least(0, "retries", retries)
        self._transport: Transport | None = None
        self._is_closed = False
        options = {"api_key": api_key, "headers": headers, "timeout": timeout, "retries": retries, **options}
        options["require_verdict"] = require_verdict
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

    @property
    @abstractmethod
    def _is_current(self) -> bool:
        """Whether this process, or the running event loop, is the one where the transport was made."""

    @abstractmethod
    def _new_transport(self) -> Transport:
        """Return a transport for this process or the running event loop."""

    @abstractmethod
    def _abandon(self, transport: Transport) -> None:
        """Close the connections of another process or event loop."""

    @abstractmethod
    async def _sleep(self, seconds: float) -> None:
        """Wait."""

    def _open(self) -> Transport:
        if self._is_closed:
            raise self._address.client_closed()
        transport = self._transport
        if transport is None or not self._is_current:
            if transport is not None:
                self._abandon(transport)
            transport = self._transport = self._new_transport()
        return transport

    async def _close(self) -> None:
        self._is_closed = True
        if self._transport is not None and self._is_current:
            await self._transport.close()
        elif self._transport is not None:
            self._abandon(self._transport)

    async def _send(self, transport: Transport, call: Call[T], limit: Limit) -> T:
        retries = Retries(self._retries, limit)
        while True:
            response = await transport.exchange(call, limit)
            pause = retries.pause(response)
            if pause is None:
                return reading.result(self._address, call, response)
            await self._sleep(pause)

    async def _events(self, call: Call[None]) -> AsyncGenerator[Event, None]:
        """Send a call whose response is a stream, and yield its events; the caller's time does not count."""
        limit, stream = Limit(call.deadline), reading.Stream(self._address)
        async with self._open_stream(call, limit) as next_chunk:
            while (chunk := await next_chunk()) is not None:
                for event in stream.feed(chunk):
                    start = time.monotonic()
                    yield event
                    limit.extend(time.monotonic() - start)
        stream.end()

    @asynccontextmanager
    async def _open_stream(self, call: Call[None], limit: Limit) -> AsyncGenerator[NextChunk, None]:
        transport, retries = self._open(), Retries(self._retries, limit)
        while True:
            async with transport.stream(call, limit) as (start, next_chunk):
                is_stream = start.status in reading.SUCCESS
                response = start if is_stream else await complete(start, next_chunk)
                pause = retries.pause(response)
                if pause is None:
                    reading.check_stream(self._address, response)
                    yield next_chunk
                    return
            await self._sleep(pause)
