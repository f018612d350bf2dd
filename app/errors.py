"""The errors that a caller may see.

::

    PullbackError             status  when
    ├── Malformed             400     the body is not what its content type says, or the request not HTTP
    ├── NotFound              404     no such path, op or operation
    ├── MethodNotAllowed      405     the path exists, for another method
    ├── NotAcceptable         406     no format that the client accepts
    ├── BodyTooSlow           408     the body did not come in time
    ├── BodyTooLarge          413     the body is over the byte limit
    ├── UnsupportedMediaType  415     no content type, an unknown one, or a compressed body
    ├── Unprocessable         422     a valid document that is wrong
    ├── HeadTooLarge          431     the headers are over the byte limit
    ├── OpFailed              500     the op failed, or its gradient is no gradient
    ├── InternalError         500     a fault of the service itself
    ├── Overloaded            503     no room now: try again
    └── DeadlinePassed        504     the answer was not there in time

An error knows its status, its headers and its document (RFC 9457); how a document is rendered is its protocol's affair.
No text that leaves here is longer than the limits below, whatever came in.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

MAX_TEXT, MAX_GOT, MAX_ENTRIES = 300, 200, 20

Loc = tuple[str | int, ...]


@dataclass(frozen=True)
class Entry:
    """One thing that is wrong: where in the request, what, what was expected and what came."""

    loc: Loc
    message: str
    expected: str
    got: str

    def document(self) -> dict[str, Any]:
        """Return the entry as it stands in a problem document."""
        return {
            "loc": [clip(str(part), MAX_GOT) if isinstance(part, str) else part for part in self.loc],
            "message": clip(self.message, MAX_TEXT),
            "expected": clip(self.expected, MAX_TEXT),
            "got": clip(self.got, MAX_GOT) or "nothing",
        }

    def sentence(self) -> str:
        """Return the message, what was expected and what came, without saying twice what was expected."""
        told = self.document()
        wanted = f"expected {told['expected']}, got {told['got']}"
        if told["message"].endswith(wanted):
            return told["message"]
        return wanted if told["message"].startswith("expected ") else f"{told['message']}; {wanted}"


class PullbackError(Exception):
    """The root: a status, a title, a detail, and an entry for each thing that is wrong."""

    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"

    def __init__(self, detail: str, *entries: Entry, headers: Mapping[str, str] | None = None) -> None:
        """Say what is wrong and how to cure it; ``headers`` go out with the answer."""
        super().__init__(detail)
        self.detail, self.entries, self.headers = detail, entries, dict(headers or {})

    def sentence(self) -> str:
        """Return what is wrong in one line, for protocols whose errors are a line of text."""
        if not self.entries:
            return clip(self.detail, MAX_TEXT)
        first = self.entries[0]
        return f"{clip(self.detail.removesuffix(first.message), MAX_TEXT)} {first.sentence()}".lstrip()

    def document(self, instance: str) -> dict[str, Any]:
        """Return the problem document (RFC 9457) for the request path ``instance``."""
        return {
            "type": f"urn:pullback:problem:{self.title.lower().replace(' ', '-')}",
            "title": self.title,
            "status": self.status,
            "detail": clip(self.detail, MAX_TEXT),
            "instance": clip(instance, MAX_TEXT),
            "errors": [entry.document() for entry in self.entries[:MAX_ENTRIES]],
        }


class CannotStart(Exception):
    """The service cannot start as it is set up: not for callers, but for the operator."""


class Malformed(PullbackError):
    """The request is not HTTP, or its body not what its content type says."""

    status, title = 400, "Malformed request"


class NotFound(PullbackError):
    """There is no such path, op or operation."""

    status, title = 404, "Not found"


class MethodNotAllowed(PullbackError):
    """The path exists, for another method: the ``Allow`` header says which."""

    status, title = 405, "Method not allowed"


class NotAcceptable(PullbackError):
    """The service has no format that the client accepts."""

    status, title = 406, "Not acceptable"


class BodyTooSlow(PullbackError):
    """The body did not arrive in time."""

    status, title = 408, "Request timeout"


class BodyTooLarge(PullbackError):
    """The body is over the byte limit."""

    status, title = 413, "Body too large"


class UnsupportedMediaType(PullbackError):
    """The content type is missing or unknown, or the body is compressed."""

    status, title = 415, "Unsupported media type"


class Unprocessable(PullbackError):
    """The request is well formed and wrong."""

    status, title = 422, "Unprocessable request"


class HeadTooLarge(PullbackError):
    """The request line and the headers are over the byte limit."""

    status, title = 431, "Request header fields too large"


class OpFailed(PullbackError):
    """The op itself failed, or returned what is no gradient."""

    status, title = 500, "Op failed"


class InternalError(PullbackError):
    """The service itself is at fault; the log has the rest."""


class Overloaded(PullbackError):
    """There is no room now, or the service is going down: try again after ``Retry-After`` seconds."""

    status, title = 503, "Service unavailable"

    def __init__(self, detail: str, *entries: Entry, retry_after_s: int = 1) -> None:
        """Say what is full, and when to come back."""
        super().__init__(detail, *entries, headers={"Retry-After": str(retry_after_s)})


class DeadlinePassed(PullbackError):
    """The answer was not there at the deadline."""

    status, title = 504, "Deadline passed"


def too_late() -> DeadlinePassed:
    """Return the error for an answer that is not there at its deadline."""
    return DeadlinePassed("expected an answer before the deadline; request less work, or allow more time")


@dataclass
class Faults:
    """Collects what is wrong with one request, so that one answer names all of it.

    After ``MAX_ENTRIES`` the rest is not kept.
    """

    entries: list[Entry] = field(default_factory=list[Entry])

    def add(self, loc: Loc, message: str, *, expected: str, got: str) -> None:
        """Add an entry."""
        if len(self.entries) < MAX_ENTRIES:
            self.entries.append(Entry(loc, message, expected, got))

    def check(self) -> None:
        """Raise ``Unprocessable`` when anything was added."""
        if self.entries:
            raise unprocessable(self.entries)


def unprocessable(entries: Sequence[Entry]) -> Unprocessable:
    """Return the error for these entries, its detail a sentence of the first."""
    first = entries[0]
    where = ".".join(str(part) for part in first.loc) or "body"
    return Unprocessable(f"{where}: {first.message}", *entries)


def wrong(loc: Loc, message: str, *, expected: str, got: str) -> Unprocessable:
    """Return the error for the one thing that is wrong."""
    return unprocessable([Entry(loc, message, expected, got)])


def near(name: str, known: Iterable[str]) -> str:
    """Return ``one of a, b, c``, the names nearest to ``name`` first, or all of the few that there are."""
    names = list(known)
    close = difflib.get_close_matches(name[:64], names, n=3, cutoff=0.5)
    if close:
        return f"a known name, such as {', '.join(close)}"
    return f"one of {', '.join(names)}" if names else "no names (none are defined)"


def clip(text: str, limit: int) -> str:
    """Return one printable line of at most ``limit`` characters."""
    line = " ".join(text[: 4 * limit].split())
    if not line.isprintable():
        line = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line)
    return line if len(line) <= limit else line[: limit - 1] + "…"
