"""Browsers: a page of another site may use the service only if the operator allows it.

Every page that a user opens can make the browser send requests to a service on the user's own machine. The browser
sends the page's origin in ``Origin``. A page can also give its own name the address of the service: then ``Origin``
matches, and only ``Host`` shows the foreign name.
"""

import re
from collections.abc import Sequence
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from app.errors import MAX_GOT, Forbidden, WrongHost, clip
from app.http.key_file import HEALTH
from app.http.listener import UNIX
from app.http.problems import ProblemResponse
from app.http.quotas import QUOTA_HEADERS
from app.http.request import Request
from app.settings import ANY, Settings

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
# These change nothing, and the browser hides their responses from pages of other origins.
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
ALLOWED_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
OWN_ORIGIN = "expected the service's own Origin"
# A name, an IPv4 address or an IPv6 address in brackets, and perhaps a port.
VALID_HOST = re.compile(rb"(?:[\w.~!$&'()*+,;=%-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]*)?")
EXPOSED_HEADERS = ("X-Request-Id", "Retry-After", "WWW-Authenticate", "Allow", *QUOTA_HEADERS)


class Origins:
    """The hosts that requests may name, and the origins of pages that may send them.

    ``last_host`` is the one that was allowed last; a request without an origin that names it needs no other check.
    ``/health/`` may have any host, because probes use addresses.
    """

    def __init__(self, settings: Settings) -> None:
        """Store what the settings allow."""
        self._hosts, self._is_any = allowed_hosts(settings), ANY in settings.origins
        self._origins = frozenset(origin.encode() for origin in settings.origins)
        self.last_host: bytes | None = None

    def check(self, request: Request, host: bytes, origin: bytes | None) -> None:
        """Raise ``Forbidden`` for a request that names a foreign host, or comes from a page of a foreign origin.

        Raises ``WrongHost`` for one without a valid ``Host``.
        """
        _need_host(request, host)
        if host != self.last_host and not request.path.startswith(HEALTH):
            if self._hosts and without_port(host.lower()) not in self._hosts:
                known = b", ".join(sorted(self._hosts)).decode("latin-1")
                got = clip(repr(host.decode("latin-1")), MAX_GOT)
                raise Forbidden(f"expected a Host among {known}, got {got}; PULLBACK_HOSTS lists the allowed hosts")
            if host and not VALID_HOST.fullmatch(host):
                raise _wrong_host(clip(repr(host.decode("latin-1")), MAX_GOT))
            # HTTP/1.1 needs a host, so none is not allowed for every request.
            self.last_host = host or None
        if origin is not None and request.method not in SAFE_METHODS and not self._is_any:
            origin = origin.lower()
            if origin not in self._origins and origin.partition(b"://")[2] != host.lower():
                got = clip(repr(origin.decode("latin-1")), MAX_GOT)
                raise Forbidden(f"{OWN_ORIGIN}, got {got}; PULLBACK_ORIGINS lists more")


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


def _need_host(request: Request, host: bytes) -> None:
    """Raise ``WrongHost`` unless the request has one ``Host``, as HTTP/1.1 demands (RFC 9112, 3.2); 1.0 needs none."""
    count = sum(name == b"host" for name, _ in request.scope["headers"])
    if count > 1 or (not count and request.scope.get("http_version") == "1.1"):
        raise _wrong_host(f"{count} of them")
    if count and not without_port(host):
        raise _wrong_host(repr(host.decode("latin-1")))


def _wrong_host(got: str) -> WrongHost:
    return WrongHost(f"expected one Host header, with the host and port of the URL, got {got}")


def without_port(host: bytes) -> bytes:
    """Return the host of a ``Host`` header; an IPv6 address keeps its brackets."""
    colon = host.rfind(b":")
    return host[:colon] if colon > host.rfind(b"]") else host
