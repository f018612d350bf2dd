"""What a failed exchange becomes: the error of the client for that of a socket or of the parser."""

import ssl
from collections.abc import Generator
from contextlib import contextmanager

import httptools

from pullback.addresses import Address
from pullback.errors import PullbackError
from pullback.http1 import NoResponse
from pullback.limits import Limit


def failure(address: Address, error: Exception, limit: Limit) -> PullbackError:
    """Return the error for a call that got no response."""
    match error:
        case TimeoutError():
            return address.timed_out(limit)
        case httptools.HttpParserError():
            return address.not_pullback("invalid HTTP")
        case MemoryError():
            return address.not_pullback("a response that does not fit into memory")
        case _:
            return address.connection_lost(has_begun=not isinstance(error, NoResponse))


def cannot_connect(address: Address, error: Exception, limit: Limit) -> PullbackError:
    """Return the error for a call that got no connection."""
    if limit.has_passed:
        return address.timed_out(limit)
    reason = _tls_error(error)
    if isinstance(reason, ssl.SSLCertVerificationError):
        return address.not_trusted(reason)
    if reason is not None:
        return address.no_tls(reason)
    return address.cannot_connect(str(error) or "no connection in time")


@contextmanager
def handshake_failed() -> Generator[None]:
    """Turn what breaks off a handshake of TLS into an error of TLS."""
    try:
        yield
    except (ssl.SSLError, TimeoutError, ConnectionAbortedError):
        raise
    except OSError as error:
        raise ssl.SSLError(error.errno, f"the server closed the connection: {error}") from error


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """Return the error of TLS that caused an error, if one did."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error
