"""The network as a client sees it, in one process or event loop.

``BlockingNetwork`` blocks the thread and ``AsyncioNetwork`` suspends the task; everything above is written once.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

from pullback.addresses import Address
from pullback.calls import Call
from pullback.connections import Connections, Sockets
from pullback.limits import Limit
from pullback.responses import Response

NextChunk: TypeAlias = Callable[[], Awaitable[bytes | None]]
"""Returns the next part of a response's content, ``None`` at the end; raises ``TimeoutError`` when the time is up."""


class Network(ABC):
    """The connections of a client in one process or event loop: its own, or those of httpx."""

    def __init__(self, address: Address, sockets: Sockets, *of_httpx: object) -> None:
        """Connect to nothing yet; httpx sends all calls if there is a proxy, or a transport or client of httpx."""
        is_direct = address.proxy is None and all(own is None for own in of_httpx)
        self.connections = Connections(address, sockets) if is_direct else None

    @property
    @abstractmethod
    def is_current(self) -> bool:
        """Whether this process, or the running event loop, is the one where it was made."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Wait."""

    @abstractmethod
    def stream(self, call: Call[Any], limit: Limit) -> AbstractAsyncContextManager[tuple[Response, NextChunk]]:
        """Send a call by httpx; yield the response without its content, and the function that receives that."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connections."""

    @abstractmethod
    def abandon(self) -> None:
        """Close the connections from another process or event loop."""
