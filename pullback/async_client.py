"""The asyncio client.

::

    async with pullback.AsyncClient() as client:
        square = client.op("square")
        dx = (await square.vjp({"x": x}, cotangents={"y": dy})).gradients["x"]
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from pullback import addresses, calls, jobs
from pullback.asyncio_connection import new_transport
from pullback.base_client import BaseClient
from pullback.calls import Call, CheckOptions
from pullback.catalogue import ListedOp
from pullback.compose import post, traced
from pullback.errors import DeadlinePassed, TimedOut
from pullback.jobs import AsyncJob, JobState
from pullback.limits import DEFAULT_RETRIES, Limit, at_least
from pullback.op import AsyncComposedOp, AsyncOp
from pullback.reports import Event
from pullback.transport import Transport

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

DEFAULT_CONCURRENCY = 64
"""The fastest number for small calls to a service on the same machine, as measured."""


class AsyncClient(BaseClient):
    """A client for asyncio; ``close`` it, or use it as a context manager.

    ``Client`` documents the arguments, the deadlines and what is sent again. With an ``http_client`` or a ``transport``
    too, a deadline limits the whole call; the client's own connections take an eighth of their CPU.

    At most ``concurrency`` calls are sent at a time. The others wait in a queue of this client, where only a deadline
    limits them, so that ``asyncio.gather`` takes any number of calls.

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
        require_verdict: bool = False,
        concurrency: int = DEFAULT_CONCURRENCY,
        transport: "httpx.AsyncBaseTransport | None" = None,
        http_client: "httpx.AsyncClient | None" = None,
    ) -> None:
        """Set the address; this sends nothing."""
        self._concurrency = at_least(1, "concurrency", concurrency)
        options: dict[str, Any] = {"require_verdict": require_verdict, "concurrency": concurrency}
        options |= {"transport": transport, "http_client": http_client}
        super().__init__(url, api_key=api_key, headers=headers, timeout=timeout, retries=retries, **options)
        self._of_httpx = transport, http_client

    async def ops(self) -> list[ListedOp]:
        """Return a summary of every op."""
        return await self.send(calls.ops())

    def op(self, name: str) -> AsyncOp:
        """Return an op by name; this sends nothing, so an unknown name shows at the first call."""
        return AsyncOp(self, name)

    async def compose(
        self, function: Callable[..., Any], *, summary: str = "", attrs: Mapping[str, Any] | None = None
    ) -> AsyncComposedOp:
        """Return the op that a Python function of ops composes; its arguments are the inputs.

        The function is called once, with values in place of arrays; ``graph_values.Value`` has their operators. It
        returns one value, the output ``y``, or a dictionary of them. ``attrs`` are defaults of the attributes that it
        names with ``Attribute("NAME")``. The service keeps the composition for a while; it gets it again when it is
        gone.
        """
        document = traced(function, summary, attrs)
        return AsyncComposedOp(self, await self.send(post(document)), document)

    async def jobs(self) -> list[JobState]:
        """Return the states of the latest jobs of the key, the newest first."""
        return await self.send(jobs.latest())

    def job(self, name: str) -> AsyncJob[dict[str, Any]]:
        """Return a job by its id; its result is the document of the answer. This sends nothing."""
        return AsyncJob(self, jobs.known(name))

    def checks(self, ops: Iterable[str] | None = None, **options: Unpack[CheckOptions]) -> AsyncGenerator[Event, None]:
        """Check the gradients of these ops, by default of all; yield the events as they arrive, ``Summary`` last.

        The first event sends the request. Closing the iterator closes the connection, and the service then stops the
        work. Raises ``ConnectionLost`` when the events end without a summary.
        """
        return self._events(calls.checks(ops, options))

    async def send(self, call: Call[T], limit: Limit | None = None) -> T:
        """Send a call and return its result; ``limit`` is that of the call, if it has started."""
        limit = limit or Limit(call.deadline)
        transport, semaphore, start = self._open(), self._semaphore, time.monotonic()
        if limit.seconds is None:
            await semaphore.acquire()
        else:
            await self._acquire(semaphore, limit)
        waited = time.monotonic() - start
        try:
            return await self._send(transport, call, limit)
        except (TimedOut, DeadlinePassed) as error:
            if limit.seconds is not None and waited > limit.seconds / 2:
                raise self._queued_too_long(waited, limit) from error
            raise
        finally:
            semaphore.release()

    async def close(self) -> None:
        """Close the connections."""
        await self._close()
        # The event loop closes the sockets after this.
        await self._sleep(0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _acquire(self, semaphore: asyncio.Semaphore, limit: Limit) -> None:
        """Wait until fewer than ``concurrency`` calls are being sent, or raise ``TimedOut``."""
        start = time.monotonic()
        try:
            async with asyncio.timeout(limit.left):
                await semaphore.acquire()
        except TimeoutError:
            raise self._queued_too_long(time.monotonic() - start, limit) from None

    def _queued_too_long(self, waited: float, limit: Limit) -> TimedOut:
        return TimedOut(
            f"{waited:.3g} s of the deadline of {limit.seconds:g} s passed in this client's own queue, where a call "
            f"waits while {self._concurrency} others are in progress (concurrency): start fewer calls at a time, or "
            "allow a longer deadline"
        )

    @property
    def _is_current(self) -> bool:
        return self._loop is asyncio.get_running_loop()

    def _new_transport(self) -> Transport:
        self._loop, self._semaphore = asyncio.get_running_loop(), asyncio.Semaphore(self._concurrency)
        return new_transport(self._address, *self._of_httpx)

    def _abandon(self, transport: Transport) -> None:
        # An event loop that has ended can close nothing.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(transport.abandon)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
