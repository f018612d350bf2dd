"""The socket addresses of hosts, found in bounded time: nothing can interrupt a look-up in the DNS."""

import ipaddress
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeAlias

Found: TypeAlias = "Future[list[SocketAddress]]"


class SocketAddress(NamedTuple):
    """A socket address of a host, and its family."""

    family: int
    address: Any


def look_up(host: str, port: int) -> Found:
    """Look up the addresses of a host, in a new thread unless it is an IP address."""
    found: Found = Future()
    # Now a waiting task cannot cancel it: the thread always sets its result.
    found.set_running_or_notify_cancel()
    if _is_ip(host):
        _look_up(host, port, found)
    else:
        threading.Thread(target=_look_up, args=(host, port, found), daemon=True).start()
    return found


def shares(addresses: Sequence[SocketAddress], end: float) -> Iterator[tuple[SocketAddress, float]]:
    """Yield each address with the seconds to try it: an equal share of what is left until ``end``, of the clock.

    Raises ``TimeoutError`` when nothing is left.
    """
    for done, address in enumerate(addresses):
        yield address, until(end) / (len(addresses) - done)


def until(end: float) -> float:
    """Return the seconds until ``end``, a time of ``time.monotonic``; raise ``TimeoutError`` after that."""
    if (left := end - time.monotonic()) <= 0:
        raise TimeoutError("timed out")
    return left


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _look_up(host: str, port: int, found: Found) -> None:
    try:
        results = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        found.set_exception(error)
    else:
        found.set_result([SocketAddress(family, address) for family, _, _, _, address in results])
