"""Browsers: a page of another site may use the service only if the operator allows it.

Every page that a user opens can make the browser send requests to a service on the user's own machine. The browser
tells the page's origin in ``Origin``. A page can also give its own name the address of the service: then ``Origin``
matches, and only ``Host`` shows the foreign name.
"""

from collections.abc import Sequence
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.errors import MAX_GOT, Forbidden, clip
from app.http.listener import UNIX
from app.http.problems import ProblemResponse
from app.http.request import HEALTH, REQUEST, Request
from app.settings import ANY, Settings

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
# These change nothing, and the browser hides their responses from pages of other origins.
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
ALLOWED_METHODS = ("GET", "HEAD", "POST")
OWN_ORIGIN = "expected the service's own Origin"
EXPOSED_HEADERS = ("X-Request-Id", "Retry-After", "WWW-Authenticate", "Allow")


class Origins:
    """The middleware that passes on requests to an allowed host, and not from a page of a foreign origin.

    For any other request it raises ``Forbidden``. ``/health/`` may have any host, because probes use addresses.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        """Store what the settings allow."""
        self._app, self._hosts = app, allowed_hosts(settings)
        self._origins = frozenset(origin.encode() for origin in settings.origins)
        self._is_any = ANY in settings.origins
        # The last host that was allowed: most requests name the same.
        self._last: bytes | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request; raises ``Forbidden``."""
        if scope["type"] == "http":
            request: Request = scope[REQUEST]
            host, origin = request.headers.get(b"host", b""), request.headers.get(b"origin")
            if self._hosts and host != self._last and not request.path.startswith(HEALTH):
                self._check_host(host)
            if origin is not None and request.method not in SAFE_METHODS and not self._is_any:
                origin = origin.lower()
                if origin not in self._origins and origin.partition(b"://")[2] != host.lower():
                    got = clip(repr(origin.decode("latin-1")), MAX_GOT)
                    raise Forbidden(f"{OWN_ORIGIN}, got {got}; PULLBACK_ORIGINS lists more")
        await self._app(scope, receive, send)

    def _check_host(self, host: bytes) -> None:
        if without_port(host.lower()) not in self._hosts:
            known, got = b", ".join(sorted(self._hosts)).decode("latin-1"), clip(repr(host.decode("latin-1")), MAX_GOT)
            raise Forbidden(f"expected a Host among {known}, got {got}; PULLBACK_HOSTS lists the allowed hosts")
        self._last = host


class Cors(CORSMiddleware):
    """Starlette's middleware, with our errors for preflights: a browser's question before a page's request.

    Its headers let pages of the allowed origins read responses. A preflight carries no key, and needs none.
    """

    def __init__(self, app: ASGIApp, settings: Settings, exposed: Sequence[str] = ()) -> None:
        """Allow the origins of the settings to read responses, and the headers of routes that are ``exposed``."""
        super().__init__(
            app,
            allow_origins=settings.origins,
            allow_methods=ALLOWED_METHODS,
            allow_headers=("*",),
            # Browsers ask before a page of the internet sends a request to a service on the user's machine or network.
            allow_private_network=True,
            expose_headers=(*EXPOSED_HEADERS, *exposed),
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        """Return the answer to a preflight."""
        answer = super().preflight_response(request_headers)
        if answer.status_code == HTTPStatus.OK:
            return answer
        vary = {"Vary": answer.headers["vary"]}
        if not self.is_allowed_origin(request_headers["origin"]):
            got = clip(repr(request_headers["origin"]), MAX_GOT)
            return ProblemResponse(Forbidden(f"{OWN_ORIGIN}, got {got}; PULLBACK_ORIGINS lists more", headers=vary))
        got = clip(repr(request_headers["access-control-request-method"]), MAX_GOT)
        expected = f"expected one of the methods {', '.join(ALLOWED_METHODS)}"
        return ProblemResponse(Forbidden(f"{expected}, got {got}", headers=vary))


def allowed_hosts(settings: Settings) -> frozenset[bytes]:
    """Return the hosts that requests may name, in lower case; empty if they may name any."""
    hosts = settings.hosts
    if not hosts and settings.host.startswith(UNIX):
        hosts = LOOPBACK_HOSTS
    elif not hosts and settings.is_loopback:
        own = f"[{settings.host}]" if ":" in settings.host else settings.host
        hosts = (*LOOPBACK_HOSTS, own)
    return frozenset() if ANY in hosts else frozenset(host.lower().encode() for host in hosts)


def without_port(host: bytes) -> bytes:
    """Return the host of a ``Host`` header; an IPv6 address keeps its brackets."""
    colon = host.rfind(b":")
    return host[:colon] if colon > host.rfind(b"]") else host
