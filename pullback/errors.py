"""The errors of the client.

::

    PullbackError                 all of them
    ├── BadArgument               an argument that cannot be sent (a ValueError as well)
    ├── CannotConnect             nothing answers at the address
    ├── TimedOut                  something is there, and too slow
    ├── ConnectionLost            the connection ended before the answer did
    ├── NotPullback               what answers is no Pullback
    └── ProblemError      status  the service says what is wrong
        ├── NotFound      404     no such op or path, or an op that could not be loaded
        ├── TooLarge      413     the body is over the server's limit
        ├── Unprocessable 422     a tensor, shape, dtype, attribute, name or mode that is wrong
        ├── OpFailed      500     the op raised, or what its gradient returned is no gradient
        ├── Overloaded    503     no room now: try again after ``retry_after`` seconds
        └── DeadlinePassed 504    the answer was not there in time

Every message is one line: what went wrong, where, and the cure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class PullbackError(Exception):
    """The root of all errors that the client raises."""


class BadArgument(PullbackError, ValueError):
    """An argument that cannot be sent."""


class CannotConnect(PullbackError):
    """Nothing answers at the address."""


class TimedOut(PullbackError):
    """The answer did not come within the client's timeout."""


class ConnectionLost(PullbackError):
    """The connection ended before the answer did."""


class NotPullback(PullbackError):
    """What answers at the address is no Pullback."""


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong with a request: where in it, what, what was expected and what came."""

    loc: tuple[str | int, ...]
    message: str
    expected: str
    got: str


class ProblemError(PullbackError):
    """The service refused or failed, and says why in a problem document (RFC 9457).

    ``status``, ``title`` and ``detail`` are those of the document, ``errors`` has an entry for each thing that is
    wrong, ``document`` is all of it. ``retry_after`` is in seconds, where the service named a time to try again.
    """

    def __init__(self, status: int, document: Mapping[str, Any], retry_after: float | None = None) -> None:
        """Take the status, the document and what the answer's ``Retry-After`` says."""
        self.status = status
        self.document = dict(document)
        self.title = str(document.get("title", "Problem"))
        self.detail = str(document.get("detail", ""))
        self.errors = [_fault(entry) for entry in document.get("errors", ())]
        self.retry_after = retry_after
        super().__init__(self._line())

    def __reduce__(self) -> tuple[Any, ...]:
        """Say how to make it again, for errors go from process to process."""
        return type(self), (self.status, self.document, self.retry_after)

    def _line(self) -> str:
        line = f"{self.title} ({self.status}): {self.detail}"
        if self.errors:
            first = self.errors[0]
            line += f"; expected {first.expected}, got {first.got}"
        if len(self.errors) > 1:
            line += f" (and {len(self.errors) - 1} more)"
        return " ".join(line.split())


class NotFound(ProblemError):
    """No such op or path, or an op that could not be loaded (404)."""


class TooLarge(ProblemError):
    """The body is over the server's limit (413)."""


class Unprocessable(ProblemError):
    """A tensor, shape, dtype, attribute, name or mode that is wrong (422)."""


class OpFailed(ProblemError):
    """The op raised, or what its gradient returned is no gradient (500)."""


class Overloaded(ProblemError):
    """The service has no room now, or is stopping (503)."""


class DeadlinePassed(ProblemError):
    """The answer was not there before the server's deadline (504)."""


_BY_STATUS: Mapping[int, type[ProblemError]] = {
    404: NotFound,
    413: TooLarge,
    422: Unprocessable,
    503: Overloaded,
    504: DeadlinePassed,
}
_OP_FAILED = "urn:pullback:problem:op-failed"


def problem(document: Mapping[str, Any], retry_after: float | None = None) -> ProblemError:
    """Return the error that a problem document tells of.

    A 500 is an ``OpFailed`` only where the op is at fault: for a fault of the service it is a plain ``ProblemError``.
    """
    status = int(document["status"])
    kind = OpFailed if document.get("type") == _OP_FAILED else _BY_STATUS.get(status, ProblemError)
    return kind(status, document, retry_after)


def _fault(entry: Mapping[str, Any]) -> Fault:
    return Fault(tuple(entry["loc"]), str(entry["message"]), str(entry["expected"]), str(entry["got"]))
