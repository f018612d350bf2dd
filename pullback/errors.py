"""The errors of the client.

::

    PullbackError                 the base class
    ├── BadArgument               an argument that cannot be sent (also a ValueError)
    ├── ClientClosed              the client was closed before the call
    ├── CannotConnect             no connection to the address, perhaps because of its TLS or of a proxy
    ├── TimedOut                  no response within the client's timeout or the call's deadline
    ├── ConnectionLost            the connection closed before the response was complete
    ├── NotPullback               the server at the address is not Pullback
    ├── BadAnswer                 another protocol's server answers something else than its protocol says
    │   └── ModelFailed           it refuses a point, or fails there
    └── ProblemError      status  the service returned a problem document
        ├── Unauthorized  401     the service needs a key, or does not know this one
        ├── NotFound      404     an unknown op or path, or an op that could not be loaded
        ├── Gone          410     a linearization or a job that has ended and is not kept
        ├── Unverified    412     no current verdict on the op, where one is required
        ├── TooLarge      413     the body exceeds the server's limit
        ├── Unprocessable 422     an invalid tensor, shape, dtype, attribute, name or mode
        ├── RateLimited   429     too many requests at a time with this key: try again after ``retry_after`` seconds
        ├── OpFailed      500     the op raised, or its gradient function returned no valid gradient
        ├── Overloaded    503     no capacity now: try again after ``retry_after`` seconds
        └── DeadlinePassed 504    the server's deadline passed before the response

Every message is one line: what is wrong, where, and how to fix it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pullback.dtypes import FLOATS


class PullbackError(Exception):
    """The base class of all errors that the client raises."""


class BadArgument(PullbackError, ValueError):
    """An argument that cannot be sent."""


class ClientClosed(PullbackError):
    """The client was closed before the call."""


class CannotConnect(PullbackError):
    """There is no connection to the address, perhaps because of its TLS or of a proxy."""


class TimedOut(PullbackError):
    """No response arrived within the client's timeout or the call's deadline."""


class ConnectionLost(PullbackError):
    """The connection closed before the response was complete."""


class NotPullback(PullbackError):
    """The server at the address is not Pullback."""


class BadAnswer(PullbackError):
    """A server of another protocol answers something else than its protocol says."""


class ModelFailed(BadAnswer):
    """A server of another protocol refuses a point, or fails there."""


@dataclass(frozen=True)
class Fault:
    """One error in a request: its location, a message, the expected value and the one it got."""

    loc: tuple[str | int, ...]
    message: str
    expected: str
    got: str


class ProblemError(PullbackError):
    """The service refused the request or failed, and returned a problem document (RFC 9457).

    ``status``, ``title`` and ``detail`` are those of the document, ``errors`` has an entry for each error, ``document``
    is the whole document. ``retry_after`` is in seconds, ``None`` if the service named no time to try again.
    """

    def __init__(self, status: int, document: Mapping[str, Any], retry_after: float | None = None) -> None:
        """Set the status, the document and the seconds of the response's ``Retry-After``."""
        self.status = status
        self.document = dict(document)
        self.title = str(document.get("title", "Problem"))
        self.detail = str(document.get("detail", ""))
        self.errors = [
            Fault(tuple(entry["loc"]), str(entry["message"]), str(entry["expected"]), str(entry["got"]))
            for entry in document.get("errors", ())
        ]
        self.retry_after = retry_after
        super().__init__(self._message())

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling: errors cross process boundaries."""
        return type(self), (self.status, self.document, self.retry_after)

    def _message(self) -> str:
        message = f"{self.title} ({self.status}): {self.detail}"
        if self.errors:
            first = self.errors[0]
            expectation = f"expected {first.expected}, got {first.got}"
            if first.message.startswith("expected "):
                message = f"{message.removesuffix(first.message).rstrip()} {expectation}"
            elif not message.endswith(expectation):
                message += f"; {expectation}"
            message += _conversion(first)
        if len(self.errors) > 1:
            message += f" (and {len(self.errors) - 1} more)"
        return " ".join(message.split())


class Unauthorized(ProblemError):
    """The service needs a key (``api_key`` or ``PULLBACK_KEY``), or does not know this one (401)."""


class NotFound(ProblemError):
    """The op or path is unknown, or the op could not be loaded (404)."""


class Gone(ProblemError):
    """The linearization, or the answer of a job, is no longer kept, or is that of another process (410)."""


class Unverified(ProblemError):
    """The op has no current verdict ``pass``, and the client or the operator requires one (412)."""


class TooLarge(ProblemError):
    """The body exceeds the server's limit (413)."""


class Unprocessable(ProblemError):
    """A tensor, shape, dtype, attribute, name or mode is invalid (422)."""


class RateLimited(ProblemError):
    """Too many requests are in progress with this key (429)."""


class OpFailed(ProblemError):
    """The op raised, or its gradient function returned no valid gradient (500)."""


class Overloaded(ProblemError):
    """The service has no capacity now, or is stopping (503)."""


class DeadlinePassed(ProblemError):
    """The server's deadline passed before the response was ready (504)."""


def _conversion(fault: Fault) -> str:
    """Return how to convert an array of integers for an input of floats, or of other integers.

    The service does not cast what is typed.
    """
    dtype = re.search(rf"\b({'|'.join(FLOATS)}|u?int\d+)\b", fault.expected)
    if dtype is None or fault.loc[2:] != ("dtype",) or not re.search(r"int|bool", fault.got):
        return ""
    return f': convert it, as by {fault.loc[1]}.astype("{dtype[0]}")'


_BY_STATUS: Mapping[int, type[ProblemError]] = {
    401: Unauthorized,
    404: NotFound,
    410: Gone,
    412: Unverified,
    413: TooLarge,
    422: Unprocessable,
    429: RateLimited,
    503: Overloaded,
    504: DeadlinePassed,
}
_OP_FAILED = "urn:pullback:problem:op-failed"


def problem(document: Mapping[str, Any], retry_after: float | None = None) -> ProblemError:
    """Return the error for a problem document.

    A 500 is an ``OpFailed`` only if the op failed; if the service failed, it is a plain ``ProblemError``.
    """
    status = int(document["status"])
    kind = OpFailed if document.get("type") == _OP_FAILED else _BY_STATUS.get(status, ProblemError)
    return kind(status, document, retry_after)
