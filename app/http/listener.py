"""The socket that the service listens on: a port, or a path for programs on the same machine."""

import contextlib
import errno
import os
import socket
import stat
import sys
from urllib.parse import quote

UNIX = "unix:"
"""The beginning of a host that is the path of a Unix socket."""
WILDCARDS = ("0.0.0.0", "::", "")
# The kernel's limit on the path of a socket, in bytes.
MAX_PATH = 107
NUMBERS = (0, 1, 2)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket bound to the address, not listening yet; raise ``OSError`` if that is not possible.

    ``host`` is a name, an IP address, or ``unix:`` and a path, which has no port.
    """
    if host.startswith(UNIX):
        return _listen_on_path(host.removeprefix(UNIX))
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except UnicodeError:
        raise OSError(errno.EINVAL, "expected a host name or an IP address") from None
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
    """Identify the file of a Unix socket: a later one at the same path has other values. ``None``: there is no file."""
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
    """Return a socket bound to a path, for the user who runs the service, and for the group if the umask allows it."""
    _check_path(path)
    # Absolute, because the clients that get it may run in other folders.
    path = os.path.abspath(path)
    if len(os.fsencode(path)) > MAX_PATH:
        raise OSError(errno.ENAMETOOLONG, f"expected a path of at most {MAX_PATH} bytes, got {path}")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    umask = os.umask(0o777)
    os.umask(umask | 0o007)
    try:
        if _is_abandoned(path):
            os.unlink(path)
        elif os.path.lexists(path) and not _is_socket(path):
            raise OSError(errno.EEXIST, "expected a new path, or that of a socket, got a file that is none")
        listener.bind(path)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(umask)
    listener.set_inheritable(True)
    return listener


def _check_path(path: str) -> None:
    """Raise ``OSError`` for what is not the path of a file, but the name of a socket that every user may open."""
    if not path:
        raise OSError(errno.EINVAL, f"expected {UNIX} and a path, got no path")
    if path.startswith("@"):
        raise OSError(
            errno.EINVAL,
            f"expected {UNIX} and a path, got the name of an abstract socket, which every user of the machine may "
            f"open; for a file of this name, write {UNIX}./{path}",
        )


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def _is_abandoned(path: str) -> bool:
    """Report whether a path is a socket that no process listens on, as a killed one leaves it."""
    try:
        if not _is_socket(path):
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.connect(path)
    except OSError as error:
        return error.errno == errno.ECONNREFUSED
    return False


def open_standard_files() -> None:
    """Open the null device in place of each standard file that is closed.

    Otherwise the system gives its number to the next file or socket that the process opens, and what is written to
    the log goes there.
    """
    for number in NUMBERS:
        try:
            os.fstat(number)
        except OSError:
            # The system returns the lowest free number: the lower ones are open.
            os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
    # Python has none where the file was closed when it started.
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 - a descriptor, for the whole process
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
