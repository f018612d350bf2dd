"""The errors that a client may see.

::

    PullbackError             status  when
    ├── Malformed             400     the body does not match its content type, or the request is not HTTP
    │   └── WrongHost         400     the request does not have one valid Host
    ├── Unauthorized          401     no valid key
    ├── Forbidden             403     a page of a foreign origin, a foreign host, beyond a key, or what is disabled
    ├── NotFound              404     no such path, op or operation
    ├── MethodNotAllowed      405     the path exists, for another method
    ├── NotAcceptable         406     no format that the client accepts
    ├── BodyTooSlow           408     the body did not arrive in time
    ├── NotReady              409     a job has not ended, and has no answer yet
    ├── Gone                  410     what was kept for a time has been freed
    ├── Unverified            412     no current verdict on the op, where one is required
    ├── BodyTooLarge          413     the body is over the byte limit
    ├── TargetTooLong         414     the target is over the byte limit
    ├── UnsupportedMediaType  415     no content type, an unknown one, or a compressed body
    ├── Unprocessable         422     a well-formed document with invalid content
    ├── TooManyRequests       429     too many requests with the same key: try again
    ├── HeadTooLarge          431     the headers are over the byte limit
    ├── OpFailed              500     the op failed, or returned an invalid gradient
    ├── InternalError         500     a fault of the service itself
    ├── Overloaded            503     too busy, or shutting down: try again
    └── DeadlinePassed        504     the response was not ready in time

An error has a status, headers and a document (RFC 9457); the protocol of the path renders the document. The texts of an
error never exceed the limits below, whatever the request contains.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pullback.wording import near_names

MAX_TEXT, MAX_GOT, MAX_ENTRIES, MOST_NEAR = 300, 200, 20, 3

Loc = tuple[str | int, ...]


@dataclass(frozen=True)
class Entry:
    """One error in a request: its location, a message, what was expected and what was received."""

    loc: Loc
    message: str
    expected: str
    got: str

    def document(self) -> dict[str, Any]:
        """Return the entry for a problem document."""
        return {
            "loc": [clip(str(part), MAX_GOT) if isinstance(part, str) else part for part in self.loc],
            "message": clip(self.message, MAX_TEXT),
            "expected": clip(self.expected, MAX_TEXT),
            "got": clip(self.got, MAX_GOT) or "nothing",
        }

    def sentence(self) -> str:
        """Return the message, what was expected and what was received, without repeating what was expected."""
        entry = self.document()
        message, comparison = entry["message"], f"expected {entry['expected']}, got {entry['got']}"
        if message.endswith(comparison):
            return message
        return comparison if message.startswith("expected ") else f"{message}; {comparison}"


class PullbackError(Exception):
    """The base of all errors: a status, a title, a detail, and an entry for each error in the request.

    ``refusal`` says for the metrics by what the key of the request, or a limit of it, caused the error.
    """

    status: ClassVar[int] = 500
    title: ClassVar[str] = "Internal error"
    refusal = ""

    def __init__(self, detail: str, *entries: Entry, headers: Mapping[str, str] | None = None) -> None:
        """Store the error and its cure in ``detail``; ``headers`` are added to the response."""
        super().__init__(detail)
        self.detail, self.entries, self.headers = detail, entries, dict(headers or {})

    def sentence(self) -> str:
        """Return the error as one line, for protocols whose errors are a line of text."""
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


class Postponed(BaseException):
    """The work cannot go on here, and starts again elsewhere or later: a message to who has started it, not an error.

    It is no ``Exception``, so that code which reports whatever the functions of an op raise lets it pass.
    """


class CannotStart(Exception):
    """The service cannot start with its settings: an error for the operator, not for clients."""


class Malformed(PullbackError):
    """The request is not HTTP, or its body does not match its content type."""

    status, title = 400, "Malformed request"


class WrongHost(Malformed):
    """The request does not have one valid ``Host``."""


class Unauthorized(PullbackError):
    """The request has no valid key."""

    status, title = 401, "Unauthorized"

    def __init__(self, detail: str, *, refusal: str = "key") -> None:
        """Store the error, and how to present a key: also as a password, which a browser asks for."""
        super().__init__(detail, headers={"WWW-Authenticate": 'Bearer realm="pullback", Basic realm="pullback"'})
        self.refusal = refusal

    def answer_script(self) -> None:
        """Answer a script of a page, which asks for the key itself: the browser must not ask too."""
        self.headers["WWW-Authenticate"] = 'Bearer realm="pullback"'


class Forbidden(PullbackError):
    """The request is from a page of a foreign origin, to a foreign host, beyond its key, or for what is disabled."""

    status, title = 403, "Forbidden"


class OutOfScope(Forbidden):
    """The key of the request is not for its scope."""

    refusal = "scope"


class NotFound(PullbackError):
    """There is no such path, op or operation."""

    status, title = 404, "Not found"


class NotReady(PullbackError):
    """The job has not ended, and has no answer yet: wait for it, and ask again."""

    status, title = 409, "Not ready"


class Gone(PullbackError):
    """The request names something that the service kept for a time and has freed."""

    status, title = 410, "Gone"


class MethodNotAllowed(PullbackError):
    """The path exists, for another method: the ``Allow`` header says which."""

    status, title = 405, "Method not allowed"


class NotAcceptable(PullbackError):
    """The service has no format that the client accepts."""

    status, title = 406, "Not acceptable"


class BodyTooSlow(PullbackError):
    """The body did not arrive in time."""

    status, title = 408, "Request timeout"


class Unverified(PullbackError):
    """The op has no current verdict, and the request or the operator requires one."""

    status, title = 412, "Verdict required"


class BodyTooLarge(PullbackError):
    """The body is over the byte limit."""

    status, title = 413, "Body too large"


class UnsupportedMediaType(PullbackError):
    """The content type is missing or unknown, or the body is compressed."""

    status, title = 415, "Unsupported media type"


class Unprocessable(PullbackError):
    """The request is well formed, but its content is invalid."""

    status, title = 422, "Unprocessable request"


class TooManyRequests(PullbackError):
    """The caller has sent too many requests: try again after ``Retry-After`` seconds."""

    status, title = 429, "Too many requests"

    def __init__(self, detail: str, *, retry_after_s: int = 1, refusal: str = "quota") -> None:
        """Store the limit, and when to try again."""
        super().__init__(detail, headers={"Retry-After": str(retry_after_s)})
        self.refusal = refusal


class TargetTooLong(PullbackError):
    """The target of the request is over the byte limit."""

    status, title = 414, "Target too long"


class HeadTooLarge(PullbackError):
    """The request line and the headers are over the byte limit."""

    status, title = 431, "Request header fields too large"


class OpFailed(PullbackError):
    """The op failed, or returned an invalid gradient."""

    status, title = 500, "Op failed"

    def __init__(self, detail: str, *entries: Entry, where: str = "") -> None:
        """Store the error; ``where`` is the author's function or line, which only the reports of checks name."""
        super().__init__(detail, *entries)
        self.where = where

    @property
    def located(self) -> str:
        """The detail, and the author's function or line."""
        return f"{self.detail} ({self.where})" if self.where else self.detail


class InternalError(PullbackError):
    """The service itself failed; the log has the details."""


class Overloaded(PullbackError):
    """The service is too busy or is shutting down: try again after ``Retry-After`` seconds."""

    status, title = 503, "Service unavailable"

    def __init__(self, detail: str, *entries: Entry, retry_after_s: int = 1) -> None:
        """Store what is full, and when to try again."""
        super().__init__(detail, *entries, headers={"Retry-After": str(retry_after_s)})


class DeadlinePassed(PullbackError):
    """The response was not ready at the deadline."""

    status, title = 504, "Deadline passed"


def too_late() -> DeadlinePassed:
    """Return the error for a response that is not ready at its deadline."""
    return DeadlinePassed("expected an answer before the deadline; request less work, or allow more time")


@dataclass
class Faults:
    """The errors in one request, collected so that one response lists all of them, up to ``MAX_ENTRIES``."""

    entries: list[Entry] = field(default_factory=list[Entry])

    def add(self, loc: Loc, message: str, *, expected: str, got: str) -> None:
        """Add an entry."""
        if len(self.entries) < MAX_ENTRIES:
            self.entries.append(Entry(loc, message, expected, got))

    def check(self) -> None:
        """Raise ``Unprocessable`` if there are entries."""
        if self.entries:
            raise unprocessable(self.entries)


def unprocessable(entries: Sequence[Entry]) -> Unprocessable:
    """Return the error for these entries; its detail is that of the first."""
    first = entries[0]
    where = ".".join(str(part) for part in first.loc) or "body"
    return Unprocessable(f"{where}: {first.message}", *entries)


def wrong(loc: Loc, message: str, *, expected: str, got: str) -> Unprocessable:
    """Return the error for one entry."""
    return unprocessable([Entry(loc, message, expected, got)])


def near(name: str, known: Iterable[str]) -> str:
    """Return the names nearest to ``name`` as an expectation, or all known names if none is near."""
    names = list(known)
    if close := near_names(name, names, MOST_NEAR):
        return f"a known name, such as {', '.join(close)}"
    return f"one of {', '.join(names)}" if names else "no names (none are defined)"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question with the names nearest to ``name``, or as an expectation all known names if none is near."""
    names = list(known)
    close = near_names(name, names, MOST_NEAR)
    if not close:
        return f"expected {near(name, names)}"
    *others, last = close
    return f"did you mean {', '.join(others)} or {last}?" if others else f"did you mean {last}?"


def clip(text: str, limit: int) -> str:
    """Return one printable line of at most ``limit`` characters."""
    line = " ".join(text[: 4 * limit].split())
    if not line.isprintable():
        line = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line)
    return line if len(line) <= limit else line[: limit - 1] + "…"
