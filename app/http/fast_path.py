"""The fast path as connections and requests see it; ``app.fast_path`` implements it."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Protocol, TypeVar

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

C_contra = TypeVar("C_contra", contravariant=True)

FAST_PATH, CANDIDATE = "fast_path", "pullback.candidate"
"""The key of the ``FastPath`` in the state that the application shares with the server, and that of the ``Candidate``
in the scope of a request, if it has one."""


class Candidate(Protocol):
    """A request of the general path from which the fast path may make a template.

    ``headers`` are those of its response, if its status is 200; ``exchange`` is set when it has been answered.
    """

    headers: Sequence[tuple[bytes, bytes]] | None
    exchange: Any


def note_headers(candidate: Candidate, cycle: RequestResponseCycle) -> None:
    """Note the headers of the response of ``cycle``, after those of the server, for the candidate."""
    send = cycle.send

    async def noting(message: ASGISendEvent) -> None:
        if message["type"] == "http.response.start" and message["status"] == HTTPStatus.OK:
            candidate.headers = (*cycle.default_headers, *message.get("headers", ()))
        await send(message)

    cycle.send = noting


class FastPath(Protocol[C_contra]):
    """The part of ``app.fast_path.fast_path.FastPath`` that connections, of one class, use."""

    def receive(self, connection: C_contra, data: bytes, now: float) -> bytes:
        """Take data that has arrived now, a time of ``time.perf_counter``; return what the parser must get."""
        ...

    def release(self, connection: C_contra) -> None:
        """Release the connection, and parse what it waited with."""
        ...

    def store(self, candidate: Candidate) -> None:
        """Make a template from a request that has been answered, if that is possible."""
        ...
