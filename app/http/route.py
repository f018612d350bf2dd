"""The classes of routes: FastAPI's routes for pages, and routes whose handlers get the raw body.

A handler of an operation reads its body itself, without a copy, and sends the response itself. FastAPI documents its
route from the models that the route is given, and never parses a body, solves dependencies or serialises a response:
these would cost several times as much as reading a small request.
"""

import re
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from inspect import Parameter, Signature
from typing import Any, NamedTuple, TypeAlias

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute, iter_route_contexts
from pydantic import BaseModel
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from app.errors import NotFound, UnsupportedMediaType, clip
from app.http.problems import Dialect, not_allowed, problem
from app.http.request import REQUEST, Request
from app.telemetry.counters import Counters

Answer: TypeAlias = Callable[[Request], Awaitable[None]]
"""Answers a request; raises a ``PullbackError`` for a request that is invalid, or that it cannot answer."""


BINARY = (b"application/vnd.safetensors", b"application/octet-stream")
# In the header Prefer (RFC 7240), which may have other preferences too.
_RESPOND_ASYNC = re.compile(rb"(?:^|,)[ \t]*respond-async[ \t]*(?=[;,]|$)", re.IGNORECASE)


class Find(NamedTuple):
    """What finds the handler of a request by the parameters of its path, which both take by name.

    ``counters`` returns the counters of such requests at once. ``handler`` takes the request too, and may wait; it
    raises ``NotFound`` for an unknown path.
    """

    counters: Callable[..., Counters]
    handler: Callable[..., Awaitable[Answer]]


def always(answer: Answer, counters: Counters) -> Find:
    """Return what finds this handler, whatever the parameters."""

    def counted(**parameters: str) -> Counters:
        del parameters
        return counters

    async def handler(request: Request, **parameters: str) -> Answer:
        del request, parameters
        return answer

    return Find(counted, handler)


def admit(request: Request) -> None:
    """Reserve memory for an uncompressed body, whose limit depends on its media type; raises a ``PullbackError``."""
    if request.has_body:
        need_uncompressed(request)
        # JSON is parsed in one piece, so its limit is smaller.
        request.reserve(is_binary=_is_binary(request.headers.get(b"content-type", b"")))


def need_uncompressed(request: Request) -> None:
    """Raise ``UnsupportedMediaType`` for a compressed body."""
    encoding = request.headers.get(b"content-encoding", b"").strip().lower()
    if encoding not in (b"identity", b""):
        got = clip(encoding.decode("latin-1"), 40)
        raise UnsupportedMediaType(f"expected a body without Content-Encoding, got {got!r}: send it uncompressed")


@lru_cache(maxsize=64)
def _is_binary(content_type: bytes) -> bool:
    return content_type.partition(b";")[0].strip().lower() in BINARY


class Route(APIRoute):
    """A route that answers HEAD as GET, and whose requests are limited and counted.

    ``others`` are the methods of its path that other routes have.
    """

    others: tuple[str, ...] = ()
    admit: Callable[[Request], None] = staticmethod(admit)

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        """Take the options of ``APIRoute``."""
        super().__init__(path, endpoint, **options)
        methods: list[str] = sorted(self.methods or ())
        self._allowed = [*methods, "HEAD"] if "GET" in methods else methods
        # Most paths differ in their last part, which is faster to compare than a pattern is to match.
        self._ending = path.rpartition("}")[2]

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match a request by its path and method."""
        if scope["type"] != "http" or not scope["path"].endswith(self._ending):
            return Match.NONE, {}
        match, child_scope = super().matches(scope)
        if match is Match.PARTIAL and scope["method"] in self._allowed:
            match = Match.FULL
        return match, child_scope

    def label(self, request: Request, parameters: dict[str, str]) -> None:
        """Set the dialect and the counters of a request."""
        raise NotImplementedError


class PageRoute(Route):
    """A route for FastAPI's endpoints. Its first tag is the label of its counters."""

    def label(self, request: Request, parameters: dict[str, str]) -> None:
        """Set the counters of a request."""
        del parameters
        counters_of = request.scope["app"].state.engine.counters
        request.counters = counters_of("", str(self.tags[0]) if self.tags else "other")
        if request.counters.is_probe:
            request.leave()

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request: Request = scope[REQUEST]
        others = request.counters
        self.label(request, {})
        self.admit(request)
        if request.method not in self._allowed:
            raise not_allowed(request.method, [*self._allowed, *self.others])
        request.is_unread = False  # the server discards a body that the endpoint does not read
        if request.method == "HEAD":
            # In a copy: the server must still see HEAD in its scope, and then sends no body.
            scope = {**scope, "method": "GET"}
        try:
            await super().handle(scope, receive, send)
        except NotFound:
            request.counters = others
            raise


class RawRoute(Route):
    """A route whose handlers get our ``Request``, with the raw body, and send the response.

    ``body`` is the model of the body, and ``parameters`` are the types of those in the path, for the documentation.
    """

    has_any_method = False

    def __init__(
        self,
        path: str,
        find: Find,
        *,
        body: type[BaseModel] | None = None,
        parameters: dict[str, Any] | None = None,
        dialect: Dialect = problem,
        admit: Callable[[Request], None] = admit,
        may_be_job: bool = True,
        **options: Any,
    ) -> None:
        """Take a function that finds the handler of a request, and the options of ``APIRoute``.

        Without ``may_be_job``, this process answers the requests itself, whatever they prefer.
        """
        if options.get("dependencies"):
            raise TypeError("expected a route without dependencies, which are not solved here: use PageRoute")
        self.find, self.dialect, self.admit, self.may_be_job = find, dialect, admit, may_be_job

        # FastAPI documents an endpoint by its signature.
        documented = {**(parameters or {}), **({"body": body} if body else {})}
        endpoint: Any = partial(find.handler)
        endpoint.__signature__ = Signature(
            [Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind) for name, kind in documented.items()]
        )
        endpoint.__doc__ = None
        super().__init__(path, endpoint, **{"name": path} | options)

    def parameters(self, scope: Scope) -> dict[str, str] | None:
        """Return the parameters of the path of a request, ``None`` if another route may have the request."""
        path: str = scope["path"]
        if scope["method"] not in self._allowed or not path.endswith(self._ending):
            return None
        found = self.path_regex.match(path)
        return found and found.groupdict()

    def label(self, request: Request, parameters: dict[str, str]) -> None:
        """Set the dialect and the counters of a request."""
        request.dialect, request.counters = self.dialect, self.find.counters(**parameters)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; raises the ``PullbackError`` of the handler, and that for an unknown path."""
        request: Request = scope[REQUEST]
        others = request.counters
        self.label(request, scope["path_params"])
        if request.counters.is_probe:
            request.leave()
        # These errors come before that for an unknown path.
        self.admit(request)
        if request.method not in self._allowed and not self.has_any_method:
            raise not_allowed(request.method, [*self._allowed, *self.others])
        try:
            answer = await self.find.handler(request, **scope["path_params"])
        except NotFound:
            request.counters = others
            raise
        if request.defer and self.may_be_job and request.method == "POST" and _prefers_job(request):
            answer = request.defer
        await answer(request)


def _prefers_job(request: Request) -> bool:
    return _RESPOND_ASYNC.search(request.headers.get(b"prefer", b"")) is not None


class RestRoute(RawRoute):
    """A route for the paths of an API that no other route has, with any method: its errors are in the API's dialect."""

    has_any_method = True

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match partially, so that this route comes after those that have the path for another method."""
        match, child_scope = super().matches(scope)
        return (Match.PARTIAL if match is Match.FULL else match), child_scope

    def parameters(self, scope: Scope) -> None:
        """Return ``None``: other routes come first."""
        del scope


def add_routes(app: FastAPI, router: APIRouter) -> None:
    """Add the routes of a router as routes of the application; raises ``TypeError`` if that has dependencies.

    For each request, FastAPI would search an included router twice.
    """
    if app.router.dependencies:
        raise TypeError("expected an application without dependencies, which these routes do not solve: use PageRoute")
    app.router.routes += router.routes


def documented_headers(app: FastAPI) -> list[str]:
    """Return the names of the headers that the routes of an application document for their responses."""
    routes = [context for context in iter_route_contexts(app.routes) if isinstance(context.original_route, APIRoute)]
    return sorted({name for route in routes for each in route.responses.values() for name in each.get("headers", ())})


def label(request: Request) -> None:
    """Give a request that was refused before it had a route the dialect and the counters of its route."""
    scope = request.scope
    if "route" in scope or "app" not in scope:
        return
    matched: list[tuple[Match, Route, Scope]] = []
    for route in (context.original_route for context in iter_route_contexts(scope["app"].routes)):
        if isinstance(route, Route):
            match, child_scope = route.matches(scope)
            matched.append((match, route, child_scope))
    for wanted in (Match.FULL, Match.PARTIAL):
        for match, route, child_scope in matched:
            if match is wanted:
                route.label(request, child_scope["path_params"])
                return
