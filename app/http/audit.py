"""What the audit log says of requests: those that change state, and those whose key is refused."""

import time
from http import HTTPStatus

from app.http.key_scopes import scope_of
from app.http.preferences import RESPOND_ASYNC
from app.http.request import Request
from app.telemetry.audit import note
from app.telemetry.counters import FIRST_ERROR
from app.telemetry.trace_context import parent_of

# The most requests with refused keys in each period that have lines; a line says how many more there were.
REFUSALS, PERIOD_S = 100, 60.0
REFUSED = ("key", "expired", "scope")


class Audit:
    """Writes the lines of requests."""

    def __init__(self) -> None:
        """Start with nothing refused."""
        self._until, self._refused = 0.0, 0

    def answered(self, request: Request, refusal: str) -> None:
        """Write a line for a request that has been answered, if it is one for the log.

        ``refusal`` is why its key was refused, empty if it was not.
        """
        event = f"refused_{refusal}" if refusal in REFUSED else _event_of(request)
        if not event or (refusal in REFUSED and not self._may_write()):
            return
        host, port = request.client or ("", 0)
        trace = request.times.trace_id if request.times is not None else None
        if trace is None and (parent := parent_of(request.traceparent)) is not None:
            trace = parent.trace_id
        note(
            event,
            key=request.key,
            client=f"{host}:{port}",
            id=request.id.decode(),
            **({"trace": trace} if trace else {}),
            method=request.method,
            path=request.target,
            **({"made": request.location} if request.location else {}),
            status=request.status,
            result="done" if 0 < request.status < FIRST_ERROR else "failed",
        )

    def _may_write(self) -> bool:
        """Count a refusal; return whether it may have a line."""
        now = time.monotonic()
        if now >= self._until:
            if (more := self._refused - REFUSALS) > 0:
                note("refused_more", count=more)
            self._until, self._refused = now + PERIOD_S, 0
        self._refused += 1
        return self._refused <= REFUSALS


def _event_of(request: Request) -> str:
    """Return what a request has done, or tried, empty for one that changes nothing."""
    if request.method in ("GET", "HEAD", "OPTIONS"):
        return ""
    if request.path.startswith("/v1/jobs/"):
        return "end_job" if request.method == "DELETE" else ""
    if RESPOND_ASYNC in request.preferences and request.status == HTTPStatus.ACCEPTED:
        return "start_job"
    match request.tool_scope or scope_of(request.method, request.path):
        case "post":
            return "put_parameters" if request.path.endswith("/parameters") else "post_graph"
        case "check":
            return "check"
        case _:
            return ""
