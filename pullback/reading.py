"""The results in responses, and the errors that are reported there."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

from pullback import safetensors
from pullback.addresses import Address
from pullback.bodies import JSON
from pullback.calls import LINES, Call
from pullback.errors import PullbackError, problem
from pullback.reports import Event, Summary, event
from pullback.responses import Response, retry_after
from pullback.safetensors import Buffer

T = TypeVar("T")

PROBLEM = "application/problem+json"
SUCCESS = range(200, 300)
NO_CONTENT = 204
SHOWN = 40
MAX_LINE = 1 << 28
"""The most bytes of an event: beyond that, it would fill the memory."""
MALFORMED = (LookupError, ArithmeticError, TypeError, ValueError, AttributeError, RecursionError)
"""What the readers of documents raise for those that are not Pullback's."""
GZIP = b"\x1f\x8b"

_DECODER = json.JSONDecoder()
_READERS: Mapping[str, Callable[[Buffer], Any]] = {
    JSON: lambda content: _DECODER.decode(str(content, "utf-8")),
    safetensors.MEDIA_TYPE: safetensors.read,
}


def result(address: Address, call: Call[T], response: Response) -> T:
    """Return the result of a call from its response; raise the error that the response reports."""
    if response.status not in SUCCESS:
        raise refusal(address, response)
    document = {} if response.status == NO_CONTENT else _document(address, call, response)
    try:
        return call.read(document)
    except MALFORMED as error:
        raise address.not_pullback(f"{call.path} returned an unexpected document") from error


def _document(address: Address, call: Call[Any], response: Response) -> dict[str, Any]:
    read = _READERS.get(response.media_type)
    if read is None:
        raise address.not_pullback(f"expected {call.accept or JSON}, got {response.media_type or 'no content type'}")
    try:
        document = read(response.content)
    except MALFORMED as error:
        raise address.not_pullback(_why_unreadable(response, error)) from None
    if not isinstance(document, dict):
        raise address.not_pullback(f"expected a JSON object, got {_start(response)}")
    return cast("dict[str, Any]", document)


def refusal(address: Address, response: Response) -> PullbackError:
    """Return the error that an unsuccessful response reports."""
    try:
        document = json.loads(bytes(response.content))
        if response.media_type == PROBLEM and str(document["type"]).startswith("urn:pullback:problem:"):
            return problem(document, retry_after(response))
    except MALFORMED:
        pass
    problem_of = " of another service" if response.media_type == PROBLEM else ""
    return address.not_pullback(f"status {response.status} with {response.media_type or 'no content type'}{problem_of}")


def _why_unreadable(response: Response, error: Exception) -> str:
    """Return what is wrong with a body that has the right media type."""
    if not response.content:
        return f"expected a body of {response.media_type}, got an empty one"
    if bytes(response.content[:2]) == GZIP:
        return f"expected a body of {response.media_type}, got one that was compressed with gzip on its way"
    what = f"JSON ({error})" if response.media_type == JSON else "safetensors"
    return f"its body is labelled {response.media_type}, but is not {what}: it begins with {_start(response)}"


def _start(response: Response) -> str:
    """Return the first bytes of a body, for errors."""
    return repr(bytes(response.content[:SHOWN]).decode("utf-8", "replace"))


def check_stream(address: Address, response: Response) -> None:
    """Raise an error unless the response is the start of a stream of events."""
    if response.status not in SUCCESS:
        raise refusal(address, response)
    if response.media_type != LINES:
        raise address.not_pullback(f"expected {LINES}, got {response.media_type or 'no content type'}")


class Stream:
    """A parser of event streams, for chunks of any size."""

    def __init__(self, address: Address) -> None:
        """Set the address, for error messages."""
        self._address = address
        self._rest = bytearray()
        self._last: Event | None = None

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Yield the complete events; raise the problem that ends the stream, or ``NotPullback``."""
        ended, newline, rest = chunk.rpartition(b"\n")
        if newline:
            ended, self._rest = bytes(self._rest) + ended, bytearray()
        self._rest += rest
        if len(self._rest) > MAX_LINE:
            raise self._address.not_pullback("a line of its stream does not end")
        for line in ended.split(b"\n"):
            if line.strip() and (found := self._event(line)) is not None:
                self._last = found
                yield found

    def end(self) -> None:
        """Raise ``ConnectionLost`` if the stream ended without a summary."""
        if self._rest or not isinstance(self._last, Summary):
            raise self._address.connection_lost()

    def _event(self, line: bytes) -> Event | None:
        try:
            return event(line)
        except MALFORMED as error:
            raise self._address.not_pullback("a line of its stream is not an event") from error
