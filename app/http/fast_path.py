"""The fast path as connections and requests see it; ``app.fast_path`` implements it."""

import asyncio
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, Protocol, TypeVar

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

C_contra = TypeVar("C_contra", contravariant=True)

FAST_PATH, CANDIDATE = "fast_path", "pullback.candidate"
"""The key of the ``FastPath`` in the state that the application shares with the server, and that of the ``Candidate``
in the scope of a request, if it has one."""


# Headers whose values differ from request to request, and change nothing in the body of a response. Most come from
# proxies, and from clients that trace. What matters in some of them is read for each request: its length, key, id and
# deadline, and whether it waits for an interim response.
VARYING = frozenset(
    b"""
    content-length expect authorization x-request-id pullback-deadline-ms x-correlation-id
    traceparent tracestate baggage b3 x-b3-traceid x-b3-spanid x-b3-parentspanid x-b3-sampled x-b3-flags
    sentry-trace uber-trace-id x-datadog-trace-id x-datadog-parent-id x-datadog-sampling-priority x-datadog-tags
    x-amzn-trace-id x-amz-cf-id x-cloud-trace-context cf-ray cf-connecting-ip true-client-ip x-real-ip
    forwarded x-forwarded-for x-forwarded-proto x-forwarded-host x-forwarded-port x-forwarded-server
    x-forwarded-client-cert x-envoy-external-address x-envoy-attempt-count x-envoy-expected-rq-timeout-ms
    via cdn-loop cookie accept-language user-agent date referer
    """.split()
)


class Candidate(Protocol):
    """A request of the general path from which the fast path may make a template.

    ``headers`` are those of its response, if its status is 200; ``exchange`` is set when it has been answered, and
    ``store`` is called then.
    """

    headers: Sequence[tuple[bytes, bytes]] | None
    exchange: Any
    store: Callable[[Any], None]


def note_response(candidate: Candidate, cycle: RequestResponseCycle) -> None:
    """Note the headers of the response of ``cycle``, after those of the server, and store the candidate at its end."""
    send = cycle.send

    async def noting(message: ASGISendEvent) -> None:
        if message["type"] == "http.response.start" and message["status"] == HTTPStatus.OK:
            candidate.headers = (*cycle.default_headers, *message.get("headers", ()))
        await send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            # After the task of the request has ended.
            asyncio.get_running_loop().call_soon(candidate.store, candidate)

    cycle.send = noting


class HeldRequest(Protocol):
    """A request that the fast path may answer, and as much of its body as has arrived."""

    body: bytes


class FastPath(Protocol[C_contra]):
    """The part of ``app.fast_path.fast_path.FastPath`` that connections, of one class, use.

    A request that it has begun ends with a call of ``Connection.answer`` or ``Connection.release``.
    """

    def begin(self, connection: C_contra) -> HeldRequest | None:
        """Return the request whose headers a connection has just parsed, if it may have a template."""
        ...

    def offer(self, held: Any, now: float) -> None:
        """Take a request, of which more has arrived now, a time of ``time.perf_counter``; it may not be whole."""
        ...

    def end(self, held: Any) -> None:
        """Forget a request, which takes the general path."""
        ...
