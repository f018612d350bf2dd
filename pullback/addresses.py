"""Addresses of services, and the errors that name them. This module sends nothing."""

import base64
import ipaddress
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import NamedTuple, Self
from urllib.parse import quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import certifi

from pullback.errors import BadArgument, CannotConnect, ClientClosed, ConnectionLost, NotPullback, TimedOut
from pullback.limits import Limit, checked

DEFAULT_PORTS = {"http": 80, "https": 443}
IPV4 = re.compile(r"[0-9]+(\.[0-9]+){3}")
PLAIN = "!$&'()*+,;=:@/%"
"""What a path may have besides letters and digits; "%" begins what is encoded already."""
DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_TIMEOUT = 60.0
CONNECT_S = 5.0
UNIX_URL = re.compile(r"http\+unix://([^/]+)((?:/.*)?)")
"""The URL of a Unix socket, whose path is percent-encoded, and the path of the service there."""
UNIX_EXAMPLE = "http+unix://%2Frun%2Fpullback.sock"
HOST, PORTS = re.compile(r"[^%\s]+"), range(1, 1 << 16)
KEY = re.compile(r"[!-~]+")
HEADER_NAME, HEADER_VALUE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"), re.compile(r"[ -~]*")
OF_HTTPX = {
    "https": ("pullback[httpx]", "httpx"),
    "socks5": ("httpx[socks]", "socksio"),
    "socks5h": ("httpx[socks]", "socksio"),
}
"""The schemes of proxies that only httpx can use, each with what installs it, and the module that it needs."""
OWN_HEADERS = ("accept", "connection", "content-length", "content-type", "pullback-deadline-ms", "transfer-encoding")


class Url(NamedTuple):
    """A URL of a server, without query and fragment. ``userinfo`` is percent-encoded and may be secret."""

    scheme: str
    userinfo: str
    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the parts of a URL; raise ``ValueError``, or ``UnicodeError`` for a host that no DNS can have."""
        if any(c <= " " or c == "\x7f" for c in text):
            raise ValueError("it has a space or a control character")
        text.encode()  # raises for half of a surrogate pair
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
        host = host.encode("idna").decode()
        if IPV4.fullmatch(host):
            ipaddress.IPv4Address(host)
        userinfo = parts.netloc.rpartition("@")[0]
        path = re.sub(r"%(?![0-9A-Fa-f]{2})", "%25", quote(parts.path, safe=PLAIN))
        return cls(parts.scheme, userinfo, host, DEFAULT_PORTS.get(parts.scheme, 0) if port is None else port, path)

    @property
    def netloc(self) -> str:
        """The host, with the port unless it is that of the scheme."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS.get(self.scheme) else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc}{self.path}"


@dataclass(frozen=True)
class Address:
    """The URL of a service, the timeout and the headers of every request, and the errors that name the URL.

    ``timeout`` limits every network wait, in seconds; ``None`` sets no limit. ``headers`` may hold a secret, and so may
    ``proxy``, the URL of the proxy that leads there, if there is one.
    """

    url: str
    timeout: float | None = DEFAULT_TIMEOUT
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    proxy: str | None = field(default=None, repr=False)

    @property
    def public_url(self) -> str:
        """The URL for error messages, without user name and password."""
        return self.url if self.socket_path else str(self.location)

    @property
    def location(self) -> Url:
        """The URL; for a Unix socket, that of its host ``localhost``."""
        unix = UNIX_URL.fullmatch(self.url)
        return Url.parse(f"http://localhost{unix[2]}" if unix else self.url)

    @property
    def socket_path(self) -> str | None:
        """The path of the Unix socket, if the service listens on one."""
        unix = UNIX_URL.fullmatch(self.url)
        return unquote(unix[1]) if unix else None

    def connect_seconds(self, limit: Limit) -> float:
        """Return how long connecting may take in all; raise ``TimeoutError`` if the call has no time left."""
        wait = limit.wait(self.timeout)
        return CONNECT_S if wait is None else min(wait, CONNECT_S)

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the settings of TLS, ``None`` for a URL without it.

        ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` name the certificates to trust; raises ``BadArgument`` if it cannot be
        read.
        """
        if self.location.scheme != "https":
            return None
        try:
            file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
            return ssl.create_default_context(
                cafile=file or (None if folder else certifi.where()), capath=None if file else folder
            )
        except OSError as error:
            name = "SSL_CERT_FILE" if os.environ.get("SSL_CERT_FILE") else "SSL_CERT_DIR"
            expected = f"{name}: expected the path of certificates in PEM format, got {os.environ.get(name)!r}"
            raise BadArgument(f"{expected} ({error}): correct it, or unset it") from error

    @property
    def needs_httpx(self) -> bool:
        """Whether only httpx can use the proxy, and is installed with what it needs for that."""
        _, needed = OF_HTTPX.get(self._proxy_scheme, ("", ""))
        return bool(needed) and find_spec("httpx") is not None and find_spec(needed) is not None

    def http_proxy(self) -> Url | None:
        """Return the proxy, if there is one; raise ``BadArgument`` for one that cannot be used."""
        if self.proxy is None:
            return None
        got = f"{self._proxy_variables}: expected a URL such as http://proxy.example:3128, got {public(self.proxy)!r}"
        if self._proxy_scheme in OF_HTTPX:
            package = OF_HTTPX[self._proxy_scheme][0]
            raise BadArgument(f"{got}, which needs a package: pip install {package!r}, or use a proxy for HTTP")
        try:
            proxy = Url.parse(self.proxy)
        except ValueError as error:
            raise BadArgument(f"{got}: correct it, or unset it") from error
        if proxy.scheme != "http" or not proxy.host:
            raise BadArgument(f"{got}: correct it, or unset it")
        return proxy

    @property
    def _proxy_scheme(self) -> str:
        return (self.proxy or "").partition("://")[0].lower()

    def cannot_connect(self, reason: object) -> CannotConnect:
        """Return the error for an address that accepts no connection."""
        if self.proxy is not None:
            message = f"cannot connect to {self.public_url} through the proxy {public(self.proxy)} ({reason})"
            return CannotConnect(f"{message}: correct {self._proxy_variables}, or add the host to NO_PROXY")
        message = f"cannot connect to {self.public_url} ({reason})"
        return CannotConnect(f"{message}: start the service there, or use another URL")

    def no_tls(self, reason: object) -> CannotConnect:
        """Return the error for a server that accepts connections, but not with TLS."""
        message = f"no TLS with {self.public_url} ({reason})"
        return CannotConnect(f"{message}: expected a server with TLS, so use http:// if it has none")

    def not_trusted(self, reason: object) -> CannotConnect:
        """Return the error for a certificate that is not valid for the URL."""
        message = f"the certificate of {self.public_url} is not trusted ({reason})"
        cure = "set SSL_CERT_FILE to a file with the certificate of its authority"
        return CannotConnect(f"{message}: use the host name of the certificate, and {cure}")

    def timed_out(self, limit: Limit) -> TimedOut:
        """Return the error for a response that did not arrive within the deadline or the timeout."""
        if limit.seconds is not None and limit.has_passed:
            message = f"no response from {self.public_url} within the deadline of {limit.seconds:g} s"
            return TimedOut(f"{message}: allow a longer deadline, or send a smaller request")
        within = "in time" if self.timeout is None else f"within {self.timeout:g} s"
        message = f"no response from {self.public_url} {within}"
        return TimedOut(f"{message}: raise the timeout, or send a smaller request")

    def client_closed(self) -> ClientClosed:
        """Return the error for a call after ``close``."""
        return ClientClosed(f"the client of {self.public_url} is closed: make another one")

    def connection_lost(self, *, has_begun: bool = True) -> ConnectionLost:
        """Return the error for a connection that closed too early, perhaps before the response has begun."""
        message = f"{self.public_url} closed the connection before the response was complete"
        may_need_tls = not has_begun and self.socket_path is None and self.location.scheme == "http"
        cure = "see the service's log, and use https:// if it expects TLS" if may_need_tls else "see the service's log"
        return ConnectionLost(f"{message}: {cure}")

    def not_pullback(self, reason: str) -> NotPullback:
        """Return the error for a response that is not Pullback's."""
        cure = "use the URL of the service"
        if self.proxy is not None:
            cure += f", or see why the proxy {public(self.proxy)} ({self._proxy_variables}) answers so"
        return NotPullback(f"the server at {self.public_url} is not Pullback ({reason}): {cure}")

    @property
    def _proxy_variables(self) -> str:
        """The variables of the environment that name the proxy."""
        return f"{self.location.scheme.upper()}_PROXY or ALL_PROXY"


def address(
    url: str | None = None,
    timeout: float | None = DEFAULT_TIMEOUT,
    api_key: str | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    use_proxy: bool = True,
) -> Address:
    """Return the address for ``url``, else for ``PULLBACK_URL``, else the default; raise ``BadArgument``.

    The key is ``api_key``, else that of ``PULLBACK_KEY``, else none. A key replaces the user name and password of the
    URL. With ``use_proxy``, the environment may name a proxy.
    """
    url = str(url or os.environ.get("PULLBACK_URL") or DEFAULT_URL).rstrip("/")
    parsed = _parsed(url)
    key = api_key or os.environ.get("PULLBACK_KEY") or None
    if key is not None and not _is(KEY, key):
        raise BadArgument("expected a key of printable ASCII characters without spaces (api_key or PULLBACK_KEY)")
    sent = {"User-Agent": "python-pullback"}
    if key is not None:
        sent["Authorization"] = f"Bearer {key}"
    elif parsed.userinfo:
        sent["Authorization"] = basic(parsed.userinfo)
    sent.update(_checked(dict(headers or {})))
    return Address(url, checked("timeout", timeout), sent, environment_proxy(parsed) if use_proxy else None)


def _parsed(url: str) -> Url:
    expected = f"expected a URL such as {DEFAULT_URL} or {UNIX_EXAMPLE}, got {public(url)!r}"
    if "?" in url or "#" in url:
        raise BadArgument(f"{expected}: remove its query and its fragment")
    try:
        parsed = Address(url).location
    except ValueError as error:
        raise BadArgument(f"{expected} ({error})") from None
    if parsed.scheme not in ("http", "https") or not HOST.fullmatch(parsed.host):
        raise BadArgument(expected)
    if parsed.port not in PORTS:
        raise BadArgument(f"{expected}: use a port from {PORTS[0]} to {PORTS[-1]}")
    return parsed


def public(url: str) -> str:
    """Return a URL without user name, password, query and fragment, valid or not."""
    return re.sub(r"(//|^)[^/?#]*@", r"\1", url).partition("?")[0].partition("#")[0]


def environment_proxy(location: Url) -> str | None:
    """Return the URL of the environment's proxy for a URL; there never is one for this machine."""
    proxies = getproxies()
    if is_this_machine(location.host) or proxy_bypass(location.netloc):
        return None
    proxy = proxies.get(location.scheme) or proxies.get("all")
    return proxy if proxy is None or "://" in proxy else f"http://{proxy}"


def basic(userinfo: str) -> str:
    """Return the value of the header for the user name and password of a URL, which are percent-encoded."""
    user, _, password = userinfo.partition(":")
    return f"Basic {base64.b64encode(f'{unquote(user)}:{unquote(password)}'.encode()).decode()}"


def _checked(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return headers with their names in one form, so that each replaces one of ours; raise ``BadArgument``."""
    for name, value in headers.items():
        if not _is(HEADER_NAME, name) or not _is(HEADER_VALUE, value):
            raise BadArgument(f"headers: expected a name and a value of printable ASCII characters, got {name!r}")
        if name.lower() in OWN_HEADERS:
            raise BadArgument(f"headers: the client sets {name} itself, so expected another name")
    return {name.title(): value for name, value in headers.items()}


def _is(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def is_this_machine(host: str) -> bool:
    """Report whether a host is this machine, by its name or IP address."""
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return ip.is_loopback or ip.is_unspecified
