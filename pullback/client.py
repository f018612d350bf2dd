"""The client.

::

    with pullback.Client() as client:
        square = client.op("square")
        dx = square.vjp({"x": x}, cotangents={"y": dy}).gradients["x"]
"""

import os
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from pullback import addresses, calls, jobs
from pullback.base_client import BaseClient
from pullback.blocking_connection import new_transport
from pullback.calls import Call, CheckOptions
from pullback.catalogue import ListedOp
from pullback.closing import Closing
from pullback.compose import post, traced
from pullback.coroutines import iterate, run
from pullback.jobs import Job, JobState
from pullback.limits import DEFAULT_RETRIES, Limit
from pullback.op import ComposedOp, Op
from pullback.reports import Event
from pullback.transport import Transport

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")


class Client(Closing, BaseClient):
    """A client that reuses its connections to a service; ``close`` it, or use it as a context manager.

    ``url`` defaults to ``PULLBACK_URL``, then to http://127.0.0.1:8000; that of a Unix socket is http+unix:// and its
    path, percent-encoded. ``api_key``, for a service that needs one, defaults to ``PULLBACK_KEY``. The client sends
    ``headers`` with every request. ``timeout`` limits every network wait, in seconds; ``None`` and infinity set no
    limit. After a 429 or 503 with a ``Retry-After``, the client sends a call again up to ``retries`` times, with at
    most half a minute of pauses. With ``require_verdict``, the service refuses an op that is not proved right, as
    ``op.verdict()`` says: it raises ``Unverified``. On failure every method raises a ``PullbackError``.

    The ``deadline`` of a call ends it, whatever the network does: at the latest a tenth of it, and half a second, after
    it, so that the service's own answer can arrive.

    Requests are sent by ``http_client``, which then has its own timeout and stays open, or by an httpx client with this
    ``transport``, for which httpx must be installed (``pip install 'pullback[httpx]'``); with these two, a deadline
    limits each wait, and a response that arrives byte by byte may take longer. Without them, the client opens its own
    connections, which take a fifth of the CPU. If the server has closed a connection that was kept, before the first
    byte of the response, the client sends the call once more, on a new connection: the calls of an op and of the
    catalogue compute their results from the request alone. It repeats no stream of checks, and no call on a client of
    yours.

    Threads may share a client. A copy, as made by pickle, and the child of a fork open their own connections.
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
        transport: "httpx.BaseTransport | None" = None,
        http_client: "httpx.Client | None" = None,
    ) -> None:
        """Set the address; this sends nothing."""
        options: dict[str, Any] = {
            "require_verdict": require_verdict,
            "transport": transport,
            "http_client": http_client,
        }
        super().__init__(url, api_key=api_key, headers=headers, timeout=timeout, retries=retries, **options)
        self._of_httpx = transport, http_client
        # Now, so that the first calls of several threads share it.
        self._transport = self._new_transport()

    def ops(self) -> list[ListedOp]:
        """Return a summary of every op."""
        return self.send(calls.ops())

    def op(self, name: str) -> Op:
        """Return an op by name; this sends nothing, so an unknown name shows at the first call."""
        return Op(self, name)

    def compose(
        self, function: Callable[..., Any], *, summary: str = "", attrs: Mapping[str, Any] | None = None
    ) -> ComposedOp:
        """Return the op that a Python function of ops composes; its arguments are the inputs.

        The function is called once, with values in place of arrays; ``graph_values.Value`` has their operators. It
        returns one value, the output ``y``, or a dictionary of them. ``attrs`` are defaults of the attributes that it
        names with ``Attribute("NAME")``. The service keeps the composition for a while; it gets it again when it is
        gone.
        """
        document = traced(function, summary, attrs)
        return ComposedOp(self, self.send(post(document)), document)

    def jobs(self) -> list[JobState]:
        """Return the states of the latest jobs of the key, the newest first."""
        return self.send(jobs.latest())

    def job(self, name: str) -> Job[dict[str, Any]]:
        """Return a job by its id; its result is the document of the answer. This sends nothing."""
        return Job(self, jobs.known(name))

    def checks(self, ops: Iterable[str] | None = None, **options: Unpack[CheckOptions]) -> Generator[Event, None, None]:
        """Check the gradients of these ops, by default of all; yield the events as they arrive, ``Summary`` last.

        The first event sends the request. Closing the iterator closes the connection, and the service then stops the
        work. Raises ``ConnectionLost`` when the events end without a summary.
        """
        return iterate(self._events(calls.checks(ops, options)))

    def send(self, call: Call[T], limit: Limit | None = None) -> T:
        """Send a call and return its result; ``limit`` is that of the call, if it has started."""
        return run(self._send(self._open(), call, limit or Limit(call.deadline)))

    def close(self) -> None:
        """Close the connections."""
        run(self._close())

    @property
    def _is_current(self) -> bool:
        return self._process == os.getpid()

    def _new_transport(self) -> Transport:
        self._process = os.getpid()
        return new_transport(self._address, *self._of_httpx)

    def _abandon(self, transport: Transport) -> None:
        # The connections that the parent still uses.
        transport.abandon()

    async def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)
