"""Responses for errors: ``application/problem+json`` (RFC 9457), or the format of another protocol."""

import json
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, TypeAlias

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.errors import (
    InternalError,
    Malformed,
    MethodNotAllowed,
    NotFound,
    PullbackError,
    unprocessable,
)
from app.tensors.validation import entries

Header = tuple[bytes, bytes]


class RenderedError(NamedTuple):
    """An error in the format of a protocol: its status, its media type and its document."""

    status: int
    media_type: str
    document: Any


Dialect: TypeAlias = Callable[[PullbackError, str], RenderedError]
"""Renders an error for the client of a path."""


def problem(error: PullbackError, instance: str) -> RenderedError:
    """Render an error as a problem document, for every path that belongs to no other protocol."""
    return RenderedError(error.status, "application/problem+json", error.document(instance))


def render(error: PullbackError, instance: str, dialect: Dialect = problem) -> tuple[int, list[Header], bytes]:
    """Return the status, the headers and the body of the response to a request for the path ``instance``."""
    rendered = dialect(error, instance)
    # orjson refuses lone surrogates, which a client can put into a name.
    text = json.dumps(rendered.document, ensure_ascii=False, separators=(",", ":"))
    body = f"{text}\n".encode("utf-8", "replace")
    headers = [(b"content-type", rendered.media_type.encode()), (b"content-length", b"%d" % len(body))]
    headers += [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in error.headers.items()]
    return rendered.status, headers, body


class ProblemResponse(Response):
    """An error as a Starlette response, for the pages that FastAPI serves."""

    def __init__(self, error: PullbackError) -> None:
        """Store the error to send."""
        super().__init__(status_code=error.status)
        self.error = error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the error."""
        del receive
        status, headers, body = render(self.error, scope["path"])
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


async def _on_pullback_error(request: Request, error: Exception) -> Response:
    del request
    return ProblemResponse(error if isinstance(error, PullbackError) else InternalError(FAULT))


async def _on_http_exception(request: Request, error: Exception) -> Response:
    match error:
        case HTTPException(status_code=404):
            return ProblemResponse(NotFound(f"unknown path {request.url.path}; GET /docs lists the paths"))
        case HTTPException(status_code=405):
            allowed = dict(error.headers or {})
            detail = f"expected {allowed.get('Allow', 'another method')} on this path, got {request.method}"
            if allowed.get("Allow") == "GET":
                allowed["Allow"] = "GET, HEAD"
            return ProblemResponse(MethodNotAllowed(detail, headers=allowed))
        case HTTPException(status_code=400):
            return ProblemResponse(Malformed(str(error.detail)))
        case _:
            return ProblemResponse(InternalError(FAULT))


async def _on_validation_error(request: Request, error: Exception) -> Response:
    del request
    if not isinstance(error, RequestValidationError):
        return ProblemResponse(InternalError(FAULT))
    return ProblemResponse(unprocessable(entries(error.errors(), ())))


FAULT = "internal error in the service, not in the request; see its log for this response's X-Request-Id"

Handler = Callable[[Request, Exception], Coroutine[Any, Any, Response]]

HANDLERS: dict[int | type[Exception], Handler] = {
    PullbackError: _on_pullback_error,
    HTTPException: _on_http_exception,
    RequestValidationError: _on_validation_error,
    Exception: _on_pullback_error,
}
