"""How calls are sent: by connections of our own, or by httpx. Each has a half that blocks, and one for asyncio.

In the half that blocks, no coroutine ever suspends.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

from pullback.calls import Call
from pullback.limits import Limit
from pullback.responses import Response

NextChunk: TypeAlias = Callable[[], Awaitable[bytes | None]]
"""Returns the next part of a response's content, ``None`` at the end; raises a ``PullbackError``."""


class Transport(ABC):
    """Sends calls. Its methods raise a ``PullbackError`` if the server does not respond."""

    @abstractmethod
    async def exchange(self, call: Call[Any], limit: Limit) -> Response:
        """Send a call and return the response."""

    @abstractmethod
    def stream(self, call: Call[Any], limit: Limit) -> AbstractAsyncContextManager[tuple[Response, NextChunk]]:
        """Send a call; yield the response without its content, and the function that receives that."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connections."""

    @abstractmethod
    def abandon(self) -> None:
        """Close what this process, or another event loop, can close."""


async def complete(start: Response, next_chunk: NextChunk) -> Response:
    """Return a response with its content."""
    content = bytearray()
    while (chunk := await next_chunk()) is not None:
        content += chunk
    return start._replace(content=content)
