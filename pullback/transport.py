"""Addresses, errors and retries, shared by both clients. This module sends nothing."""

import email.utils
import ipaddress
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import httpx

from pullback.calls import LINES, Call
from pullback.errors import (
    BadArgument,
    CannotConnect,
    ConnectionLost,
    NotPullback,
    PullbackError,
    TimedOut,
    problem,
)
from pullback.reports import Event, Summary, event

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8000"
DEFAULT_TIMEOUT = 60.0
DEFAULT_RETRIES = 3
CONNECT_S = 5.0
RETRY_S = 30.0
"""The limit on the sum of all pauses of one call, in seconds."""
TRY_AGAIN = (429, 503)
KEY = re.compile(r"[!-~]+")
PROBLEM = "application/problem+json"


@dataclass(frozen=True)
class Address:
    """The URL of a service, the timeout and the key, and the errors that name the URL or the timeout."""

    url: str
    timeout: float
    key: str | None = field(default=None, repr=False)

    @property
    def public_url(self) -> str:
        """The URL for error messages, without user name and password."""
        return str(httpx.URL(self.url).copy_with(userinfo=b""))

    def options(self) -> dict[str, Any]:
        """Return the arguments of an httpx client; it uses the environment's proxies only for other machines.

        A key replaces the user name and password of the URL.
        """
        timeout = httpx.Timeout(self.timeout, connect=min(self.timeout, CONNECT_S))
        url = httpx.URL(self.url)
        return {
            "base_url": self.url,
            "timeout": timeout,
            "trust_env": not is_this_machine(url.host),
            "auth": self._authorize if self.key else None,
            # With the certificates of SSL_CERT_FILE, which without `trust_env` httpx would ignore.
            "verify": httpx.create_ssl_context() if url.scheme == "https" else True,
        }

    def _authorize(self, request: httpx.Request) -> httpx.Request:
        request.headers["Authorization"] = f"Bearer {self.key}"
        return request

    def failure(self, error: Exception) -> PullbackError:
        """Return the error for an error of httpx."""
        match error:
            case httpx.ConnectError() | httpx.ConnectTimeout() | httpx.ProxyError():
                message = f"cannot connect to {self.public_url} ({error})"
                return CannotConnect(f"{message}: start the service there, or use another URL")
            case httpx.TimeoutException():
                message = f"no response from {self.public_url} within {self.timeout:g} s"
                return TimedOut(f"{message}: raise the timeout, or send a smaller request")
            case httpx.RemoteProtocolError() if "disconnected" in str(error) or "closed" in str(error):
                return self.connection_lost()
            case httpx.RemoteProtocolError() | httpx.DecodingError():
                return self.not_pullback("invalid HTTP")
            case httpx.UnsupportedProtocol() | httpx.InvalidURL() | httpx.LocalProtocolError():
                return BadArgument(f"{self.public_url}: {error}")
            case _:
                return self.connection_lost()

    def connection_lost(self) -> ConnectionLost:
        """Return the error for a connection that closed too early."""
        message = f"{self.public_url} closed the connection before the response was complete"
        return ConnectionLost(f"{message}: see the service's log")

    def not_pullback(self, reason: str) -> NotPullback:
        """Return the error for a response that is not Pullback's."""
        return NotPullback(f"the server at {self.public_url} is not Pullback ({reason}): use the URL of the service")


def address(url: str | None, timeout: float, api_key: str | None = None) -> Address:
    """Return the address for ``url``, else for ``PULLBACK_URL``, else the default; raise ``BadArgument``.

    The key is ``api_key``, else that of ``PULLBACK_KEY``, else none.
    """
    url = (url or os.environ.get("PULLBACK_URL") or DEFAULT_URL).rstrip("/")
    try:
        parsed = httpx.URL(url)
        is_valid = parsed.scheme in ("http", "https") and bool(parsed.host)
    except httpx.InvalidURL:
        is_valid = False
    if not is_valid:
        raise BadArgument(f"expected a URL such as {DEFAULT_URL}, got {url!r}")
    key = api_key or os.environ.get("PULLBACK_KEY") or None
    if key is not None and not KEY.fullmatch(key):
        raise BadArgument("expected a key of printable ASCII characters without spaces (api_key or PULLBACK_KEY)")
    return Address(url, timeout, key)


def is_this_machine(host: str) -> bool:
    """Report whether a host is this machine, by its name or IP address."""
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return ip.is_loopback or ip.is_unspecified


def result(address: Address, call: Call[T], response: httpx.Response) -> T:
    """Return the result of a call from its response; raise the error that the response reports."""
    if not response.is_success:
        raise refusal(address, response)
    try:
        document = json.loads(response.content)
    except ValueError:
        raise address.not_pullback(f"expected JSON, got {_content_type(response) or 'no content type'}") from None
    if not isinstance(document, dict):
        raise address.not_pullback("expected a JSON object")
    try:
        return call.read(cast("dict[str, Any]", document))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise address.not_pullback(f"{call.path} returned an unexpected document") from error


def refusal(address: Address, response: httpx.Response) -> PullbackError:
    """Return the error that an unsuccessful response reports."""
    content_type = _content_type(response)
    try:
        document = json.loads(response.content)
        if content_type == PROBLEM and str(document["type"]).startswith("urn:pullback:problem:"):
            return problem(document, retry_after(response))
    except (KeyError, TypeError, ValueError):
        pass
    return address.not_pullback(f"status {response.status_code} with {content_type or 'no content type'}")


def check_stream(address: Address, response: httpx.Response) -> None:
    """Raise an error unless the response is a stream of events."""
    if not response.is_success:
        raise refusal(address, response)
    if (content_type := _content_type(response)) != LINES:
        raise address.not_pullback(f"expected {LINES}, got {content_type or 'no content type'}")


class Stream:
    """A parser of event streams, for chunks of any size."""

    def __init__(self, address: Address) -> None:
        """Set the address, for error messages."""
        self._address = address
        self._rest = b""
        self._last: Event | None = None

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Yield the complete events; raise the problem that ends the stream, or ``NotPullback``."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            if line.strip() and (event := self._event(line)) is not None:
                self._last = event
                yield event

    def end(self) -> None:
        """Raise ``ConnectionLost`` if the stream ended without a summary."""
        if self._rest or not isinstance(self._last, Summary):
            raise self._address.connection_lost()

    def _event(self, line: bytes) -> Event | None:
        try:
            return event(line)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._address.not_pullback("a line of its stream is not an event") from error


def retry_after(response: httpx.Response) -> float | None:
    """Return the seconds of ``Retry-After``, which may be a date; ``None`` if there are none."""
    value = response.headers.get("retry-after", "")
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


@dataclass
class Retries:
    """The retries of a call after a 429 or 503 with a time: ``left``, with ``seconds`` of pauses in all."""

    left: int
    seconds: float = RETRY_S

    def pause(self, response: httpx.Response) -> float | None:
        """Return the seconds to wait before the next try, or ``None`` to give up."""
        wait = retry_after(response) if response.status_code in TRY_AGAIN else None
        if wait is None or self.left < 1 or not wait <= self.seconds:
            return None
        self.left -= 1
        self.seconds -= wait
        return wait


def _content_type(response: httpx.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()
