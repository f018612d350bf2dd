"""Between a call and HTTP: addresses, what went wrong on the way, and when to try again. It sends nothing itself."""

import email.utils
import ipaddress
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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
"""How long all pauses of one call may be together, in seconds."""
UNAVAILABLE = 503
PROBLEM = "application/problem+json"


@dataclass(frozen=True)
class Address:
    """Where the service is, as the errors have it."""

    url: str
    timeout: float

    @property
    def told(self) -> str:
        """The URL as errors may show it: without a password."""
        return str(httpx.URL(self.url).copy_with(userinfo=b""))

    def options(self) -> dict[str, Any]:
        """Return the arguments of an httpx client: the environment's proxies are not for this machine itself."""
        timeout = httpx.Timeout(self.timeout, connect=min(self.timeout, CONNECT_S))
        host = httpx.URL(self.url).host
        return {"base_url": self.url, "timeout": timeout, "trust_env": not is_this_machine(host)}

    def failure(self, error: Exception) -> PullbackError:
        """Return the error that tells of one of httpx."""
        match error:
            case httpx.ConnectError() | httpx.ConnectTimeout() | httpx.ProxyError():
                told = f"cannot connect to {self.told} ({error})"
                return CannotConnect(f"{told}: start the service there, or name another URL")
            case httpx.TimeoutException():
                told = f"no answer from {self.told} within {self.timeout:g} s"
                return TimedOut(f"{told}: allow a longer timeout, or ask for less")
            case httpx.RemoteProtocolError() if "disconnected" in str(error) or "closed" in str(error):
                return self.lost()
            case httpx.RemoteProtocolError() | httpx.DecodingError():
                return self.stranger("it does not speak HTTP as it should")
            case httpx.UnsupportedProtocol() | httpx.InvalidURL() | httpx.LocalProtocolError():
                return BadArgument(f"{self.told}: {error}")
            case _:
                return self.lost()

    def lost(self) -> ConnectionLost:
        """Return the error of a connection that ended too early."""
        return ConnectionLost(f"{self.told} ended the connection before its answer was complete: see the service's log")

    def stranger(self, why: str) -> NotPullback:
        """Return the error of an answer that is not Pullback's."""
        return NotPullback(f"what answers at {self.told} is not Pullback ({why}): name the URL of the service")


def address(url: str | None, timeout: float) -> Address:
    """Return the address of a URL, of ``PULLBACK_URL``, or the default; raise ``BadArgument``."""
    url = (url or os.environ.get("PULLBACK_URL") or DEFAULT_URL).rstrip("/")
    try:
        parsed = httpx.URL(url)
        is_right = parsed.scheme in ("http", "https") and bool(parsed.host)
    except httpx.InvalidURL:
        is_right = False
    if not is_right:
        raise BadArgument(f"expected a URL such as {DEFAULT_URL}, got {url!r}")
    return Address(url, timeout)


def is_this_machine(host: str) -> bool:
    """Tell whether a host is this machine, as its name or number says."""
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return number.is_loopback or number.is_unspecified


def result(address: Address, call: Call[T], response: httpx.Response) -> T:
    """Return what an answer says to a call; raise what it tells of."""
    document = _document(address, response)
    try:
        return call.read(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise address.stranger(f"{call.path} answered without what belongs there") from error


def refusal(address: Address, response: httpx.Response) -> PullbackError:
    """Return the error that an answer other than 200 tells of."""
    kind = _kind(response)
    try:
        document = json.loads(response.content)
        if kind == PROBLEM and str(document["type"]).startswith("urn:pullback:problem:"):
            return problem(document, retry_after(response))
    except (KeyError, TypeError, ValueError):
        pass
    return address.stranger(f"it answered {response.status_code} and {kind or 'no type'}")


def check_stream(address: Address, response: httpx.Response) -> None:
    """Raise what a response that begins says, if that is not a stream of events."""
    if not response.is_success:
        raise refusal(address, response)
    if _kind(response) != LINES:
        raise address.stranger(f"it answered {_kind(response) or 'no type'} where {LINES} was asked for")


class Stream:
    """The events of a stream, from its bytes as they come in whatever pieces."""

    def __init__(self, address: Address) -> None:
        """Take the address, for the errors."""
        self._address = address
        self._rest = b""
        self._last: Event | None = None

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Yield the events that are complete; raise the problem with which the stream ends, or ``NotPullback``."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            if line.strip() and (event := self._event(line)) is not None:
                self._last = event
                yield event

    def end(self) -> None:
        """Raise ``ConnectionLost`` when a stream that is over has not come to its summary."""
        if self._rest or not isinstance(self._last, Summary):
            raise self._address.lost()

    def _event(self, line: bytes) -> Event | None:
        try:
            return event(line)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self._address.stranger("a line of its stream is no event") from error


def retry_after(response: httpx.Response) -> float | None:
    """Return the seconds of ``Retry-After``, which may name a date."""
    said = response.headers.get("retry-after", "")
    if said.isdecimal():
        return float(said)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(said).timestamp() - time.time())
    except ValueError:
        return None


@dataclass
class Retries:
    """When to send a call again: at a 503 that names a time, so many times, and no longer than ``RETRY_S`` in all."""

    left: int
    seconds: float = RETRY_S

    def pause(self, response: httpx.Response) -> float | None:
        """Return how long to wait before the next try, or nothing where there is none."""
        wait = retry_after(response) if response.status_code == UNAVAILABLE else None
        if wait is None or self.left < 1 or not wait <= self.seconds:
            return None
        self.left -= 1
        self.seconds -= wait
        return wait


def _document(address: Address, response: httpx.Response) -> Mapping[str, Any]:
    if not response.is_success:
        raise refusal(address, response)
    try:
        document = json.loads(response.content)
    except ValueError:
        raise address.stranger(f"it answered {_kind(response) or 'no type'} where JSON was asked for") from None
    if not isinstance(document, dict):
        raise address.stranger("it answered JSON that is no object")
    return cast("dict[str, Any]", document)


def _kind(response: httpx.Response) -> str:
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()
