"""Responses for errors: ``application/problem+json`` (RFC 9457), or the format of another protocol."""

import json
from collections.abc import Callable, Coroutine, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple, TypeAlias

from fastapi.exception_handlers import http_exception_handler
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.errors import Malformed, MethodNotAllowed, NotFound, PullbackError, unprocessable
from app.tensors.validation import entries

Header = tuple[bytes, bytes]


class RenderedError(NamedTuple):
    """An error in the format of a protocol: its status, its media type and its document, a page if that is a text."""

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
    document = rendered.document
    text = document if isinstance(document, str) else json.dumps(document, ensure_ascii=False, separators=(",", ":"))
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


async def _on_http_exception(request: Request, error: Exception) -> Response:
    """Raise the ``PullbackError`` for an error of FastAPI; answer that of an endpoint as FastAPI does."""
    if isinstance(error.__cause__, PullbackError):
        raise error.__cause__  # of the body, which FastAPI could not read
    match error:
        case HTTPException(status_code=404, detail=HTTPStatus.NOT_FOUND.phrase):
            raise NotFound(f"unknown path {request.url.path}; GET /docs lists the paths") from None
        case HTTPException(status_code=405):
            raise not_allowed(request.method, (error.headers or {}).get("Allow", "").split(", ")) from None
        case HTTPException(status_code=400):
            raise Malformed(str(error.detail)) from None
        case HTTPException():
            return await http_exception_handler(request, error)
        case _:
            raise error


async def _on_validation_error(request: Request, error: Exception) -> Response:
    del request
    if not isinstance(error, RequestValidationError):
        raise error
    raise unprocessable(entries(error.errors(), ())) from None


def not_allowed(method: str, allowed: Sequence[str]) -> MethodNotAllowed:
    """Return the error for a method that a path does not have."""
    expected = " or ".join(name for name in allowed if name != "HEAD")
    return MethodNotAllowed(f"expected {expected} on this path, got {method}", headers={"Allow": ", ".join(allowed)})


FAULT = "internal error in the service, not in the request; see its log for this response's X-Request-Id"

Handler = Callable[[Request, Exception], Coroutine[Any, Any, Response]]

HANDLERS: dict[int | type[Exception], Handler] = {
    HTTPException: _on_http_exception,
    RequestValidationError: _on_validation_error,
}
