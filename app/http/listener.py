"""The socket that the service listens on: a port, or a path for programs on the same machine."""

import contextlib
import errno
import os
import socket
import stat
from urllib.parse import quote

UNIX = "unix:"
"""The beginning of a host that is the path of a Unix socket."""
WILDCARDS = ("0.0.0.0", "::", "")


def listen(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address, not listening yet; raise ``OSError`` if the address is in use.

    ``host`` is a name, an IP address, or ``unix:`` and a path, which has no port.
    """
    if host.startswith(UNIX):
        return _listen_on_path(host.removeprefix(UNIX))
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    listener.set_inheritable(True)
    return listener


def identity_of(host: str) -> tuple[int, int] | None:
    """Return what tells the file of a Unix socket from a later one at its path; ``None`` if there is no file."""
    if not host.startswith(UNIX):
        return None
    try:
        found = os.stat(host.removeprefix(UNIX))
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


def release(host: str, identity: tuple[int, int] | None) -> None:
    """Remove the file of a Unix socket at the end, unless another process has replaced it by its own.

    A service that drains has closed its listener already, so its successor may have started.
    """
    if identity is not None and identity_of(host) == identity:
        with contextlib.suppress(OSError):
            os.unlink(host.removeprefix(UNIX))


def url_of(listener: socket.socket, scheme: str = "http") -> str:
    """Return the URL of the listener for clients on this machine."""
    name = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return f"{scheme}+unix://{quote(name, safe='')}"
    host, port = name[:2]
    if host in WILDCARDS:
        host = "127.0.0.1"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _listen_on_path(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if _is_abandoned(path):
            os.unlink(path)
        listener.bind(path)
    except OSError:
        listener.close()
        raise
    listener.set_inheritable(True)
    return listener


def _is_abandoned(path: str) -> bool:
    """Report whether a path is a socket that no process listens on, as a killed one leaves it."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.connect(path)
    except OSError as error:
        return error.errno == errno.ECONNREFUSED
    return False
