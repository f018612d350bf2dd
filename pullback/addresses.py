"""Addresses of services, and the errors that name them. This module sends nothing."""

import base64
import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote
from urllib.request import getproxies, proxy_bypass

import httpx

from pullback.calls import Call
from pullback.errors import (
    BadArgument,
    CannotConnect,
    ClientClosed,
    ConnectionLost,
    NotPullback,
    PullbackError,
    TimedOut,
)
from pullback.limits import Limit

DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_TIMEOUT = 60.0
CONNECT_S = 5.0
UNIX_URL = re.compile(r"http\+unix://([^/]+)((?:/.*)?)")
"""The URL of a Unix socket, whose path is percent-encoded, and the path of the service there."""
UNIX_EXAMPLE = "http+unix://%2Frun%2Fpullback.sock"
KEY = re.compile(r"[!-~]+")
HEADER_NAME, HEADER_VALUE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"), re.compile(r"[ -~]*")
OWN_HEADERS = ("accept", "connection", "content-length", "content-type", "pullback-deadline-ms", "transfer-encoding")


@dataclass(frozen=True)
class Address:
    """The URL of a service, the timeout and the headers of every request, and the errors that name the URL.

    ``timeout`` limits every network wait, in seconds; ``None`` sets no limit. ``headers`` may hold a secret.
    """

    url: str
    timeout: float | None = DEFAULT_TIMEOUT
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    @property
    def public_url(self) -> str:
        """The URL for error messages, without user name and password."""
        return self.url if self.socket_path else str(self.location)

    @property
    def location(self) -> httpx.URL:
        """The URL, without user name and password; for a Unix socket, that of its host ``localhost``."""
        if unix := UNIX_URL.fullmatch(self.url):
            return httpx.URL(f"http://localhost{unix[2]}")
        return httpx.URL(self.url).copy_with(userinfo=b"")

    @property
    def socket_path(self) -> str | None:
        """The path of the Unix socket, if the service listens on one."""
        unix = UNIX_URL.fullmatch(self.url)
        return unquote(unix[1]) if unix else None

    @property
    def has_proxy(self) -> bool:
        """Whether the environment names a proxy for this address; it never does for this machine."""
        host, proxies = self.location.host, getproxies()
        if is_this_machine(host) or proxy_bypass(host):
            return False
        return self.location.scheme in proxies or "all" in proxies

    def options(self) -> dict[str, Any]:
        """Return the arguments of an httpx client; it uses the environment's proxies only for other machines."""
        connect = CONNECT_S if self.timeout is None else min(self.timeout, CONNECT_S)
        return {
            "timeout": httpx.Timeout(self.timeout, connect=connect, pool=None),
            "trust_env": not is_this_machine(self.location.host),
            # With the certificates of SSL_CERT_FILE, which without `trust_env` httpx would ignore.
            "verify": httpx.create_ssl_context() if self.location.scheme == "https" else True,
        }

    def request_options(self, call: Call[Any], limit: Limit) -> dict[str, Any]:
        """Return the arguments of a request of httpx, without method and content."""
        location = self.location
        path = location.raw_path.rstrip(b"/") + call.path.encode("ascii")
        options: dict[str, Any] = {
            "url": location.copy_with(raw_path=path),
            "headers": {**self.headers, **call.content.headers(), **limit.headers()},
        }
        if limit.seconds is not None:
            options["timeout"] = limit.wait(self.timeout)
        return options

    def failure(self, error: Exception, limit: Limit) -> PullbackError:
        """Return the error for an error of httpx."""
        match error:
            case httpx.ConnectError() | httpx.ConnectTimeout() | httpx.ProxyError():
                return self.cannot_connect(error)
            case httpx.TimeoutException():
                return self.timed_out(limit)
            case httpx.RemoteProtocolError() if "disconnected" in str(error) or "closed" in str(error):
                return self.connection_lost()
            case httpx.RemoteProtocolError() | httpx.DecodingError():
                return self.not_pullback("invalid HTTP")
            case httpx.UnsupportedProtocol() | httpx.InvalidURL() | httpx.LocalProtocolError():
                return BadArgument(f"{self.public_url}: {error}")
            case _:
                return self.connection_lost()

    def cannot_connect(self, reason: object) -> CannotConnect:
        """Return the error for an address that accepts no connection."""
        message = f"cannot connect to {self.public_url} ({reason})"
        return CannotConnect(f"{message}: start the service there, or use another URL")

    def timed_out(self, limit: Limit) -> TimedOut:
        """Return the error for a response that did not arrive within the deadline or the timeout."""
        if limit.seconds is not None and limit.has_passed:
            message = f"no response from {self.public_url} within the deadline of {limit.seconds:g} s"
            return TimedOut(f"{message}: allow a longer deadline, or send a smaller request")
        message = f"no response from {self.public_url} within {self.timeout:g} s"
        return TimedOut(f"{message}: raise the timeout, or send a smaller request")

    def client_closed(self) -> ClientClosed:
        """Return the error for a call after ``close``."""
        return ClientClosed(f"the client of {self.public_url} is closed: make another one")

    def connection_lost(self) -> ConnectionLost:
        """Return the error for a connection that closed too early."""
        message = f"{self.public_url} closed the connection before the response was complete"
        return ConnectionLost(f"{message}: see the service's log")

    def not_pullback(self, reason: str) -> NotPullback:
        """Return the error for a response that is not Pullback's."""
        return NotPullback(f"the server at {self.public_url} is not Pullback ({reason}): use the URL of the service")


def address(
    url: str | None = None,
    timeout: float | None = DEFAULT_TIMEOUT,
    api_key: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Address:
    """Return the address for ``url``, else for ``PULLBACK_URL``, else the default; raise ``BadArgument``.

    The key is ``api_key``, else that of ``PULLBACK_KEY``, else none. A key replaces the user name and password of the
    URL.
    """
    url = (url or os.environ.get("PULLBACK_URL") or DEFAULT_URL).rstrip("/")
    parsed = _parsed(url)
    if timeout is not None and not timeout > 0:
        raise BadArgument(f"timeout: expected seconds above 0, or None for no limit, got {timeout}")
    key = api_key or os.environ.get("PULLBACK_KEY") or None
    if key is not None and not KEY.fullmatch(key):
        raise BadArgument("expected a key of printable ASCII characters without spaces (api_key or PULLBACK_KEY)")
    sent = {"User-Agent": "python-pullback"}
    if key is not None:
        sent["Authorization"] = f"Bearer {key}"
    elif parsed.userinfo:
        sent["Authorization"] = _basic(parsed.userinfo.decode())
    return Address(url, timeout, {**sent, **_checked(headers or {})})


def _parsed(url: str) -> httpx.URL:
    try:
        if unix := UNIX_URL.fullmatch(url):
            return httpx.URL(f"http://localhost{unix[2]}")
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL()
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise BadArgument(f"expected a URL such as {DEFAULT_URL} or {UNIX_EXAMPLE}, got {url!r}")
    return parsed


def _basic(userinfo: str) -> str:
    """Return the value of the header for the user name and password of a URL, which are percent-encoded."""
    user, _, password = userinfo.partition(":")
    return f"Basic {base64.b64encode(f'{unquote(user)}:{unquote(password)}'.encode()).decode()}"


def _checked(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return headers with their names in one form, so that each replaces one of ours; raise ``BadArgument``."""
    for name, value in headers.items():
        if not HEADER_NAME.fullmatch(name) or not HEADER_VALUE.fullmatch(value):
            raise BadArgument(f"headers: expected a name and a value of printable ASCII characters, got {name!r}")
        if name.lower() in OWN_HEADERS:
            raise BadArgument(f"headers: the client sets {name} itself, so expected another name")
    return {name.title(): value for name, value in headers.items()}


def is_this_machine(host: str) -> bool:
    """Report whether a host is this machine, by its name or IP address."""
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return ip.is_loopback or ip.is_unspecified
