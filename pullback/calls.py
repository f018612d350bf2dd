"""Requests, each with the function that reads its response. This module does no I/O."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Generic, Literal, NamedTuple, TypedDict, TypeVar
from urllib.parse import quote

from pullback import bodies, catalogue
from pullback.bodies import JSON, Body
from pullback.errors import BadArgument
from pullback.limits import checked

T = TypeVar("T")

LINES = "application/x-ndjson"


class Common(TypedDict, total=False):
    """Arguments that every operation accepts beside its tensors.

    ``attrs``: the op's attributes. ``dtype``: the dtype of its type variable; by default that of the float arrays,
    if they agree. ``mode``: graph, eager, xla or v1. ``device``: such as cpu or gpu:0. ``parameters``: the digest of
    values of the op's parameters, in place of those of its page. ``deadline``: the seconds that the whole call may
    take, with its retries, its connection and a first look at the contract; the service stops working on it then.
    ``None`` and infinity set no limit. ``background``: return a ``Job`` (an ``AsyncJob``) at once, whose ``result`` is
    that of the call; a string is the name under which the same call finds the same job again.
    """

    attrs: Mapping[str, Any] | None
    dtype: str | None
    mode: str | None
    device: str | None
    parameters: str | None
    deadline: float | None
    background: bool | str


class Pointwise(Common, total=False):
    """Arguments of the operations that may have many points.

    ``points``: each input and direction has a leading axis of points, and so has each array of the answer. ``partial``:
    the others are answered if some points fail, and ``failed`` of the answer has the error of each of these.
    ``digits``: ``uncertainty`` of the answer has the estimated rounding error of each number, and ``digits`` how many
    decimal digits of it are right.
    """

    points: bool
    partial: bool
    digits: bool


class CheckOptions(TypedDict, total=False):
    """Options of the gradient checks.

    ``dtypes``, ``modes`` and ``checks`` each select, by default everything, and ``orders`` of derivatives from 1 to 4,
    by default 1 and 2; ``seed`` fixes the random draws; ``tolerances``, a mapping with ``absolute`` and ``relative``,
    widens every comparison on top of error bars and rounding; ``budget_s`` and ``deadline``, in seconds, end the
    checks, and what is not checked by then is in the report. The deadline includes the way to the service and back.
    ``parameters`` is the digest of the values around which a check of one op moves the parameters.
    With ``strict_claims``, doubtful declarations of an op are failures instead of notes.
    ``background`` makes a ``Job`` of the check of one op, as in ``Common``.
    """

    dtypes: Sequence[str] | None
    modes: Sequence[str] | None
    orders: Sequence[int] | None
    checks: Sequence[str] | None
    device: str | None
    parameters: str | None
    seed: int | None
    tolerances: Mapping[str, float] | None
    budget_s: float | None
    strict_claims: bool | None
    deadline: float | None
    background: bool | str


class Content(NamedTuple):
    """The media type of a response, and the media type and the size of the body of the request, if it has one."""

    accept: str
    media_type: str | None = None
    size: int = 0

    def headers(self) -> dict[str, str]:
        """Return the headers that describe it."""
        if self.media_type is None:
            return {"Accept": self.accept}
        return {"Accept": self.accept, "Content-Type": self.media_type, "Content-Length": str(self.size)}


class Call(NamedTuple, Generic[T]):
    """A request, and the function that reads its response; a GET has no ``body``.

    ``accept`` is the media type of the response; ``deadline`` limits the whole call, in seconds. A call that computes
    its response from the request alone ``may_repeat``: if a connection that was kept turns out to be closed before the
    first byte of the response, the client sends it once more. ``verb`` is a method other than GET and POST. ``headers``
    are sent too.
    """

    path: str
    read: Callable[[Mapping[str, Any]], T]
    body: Body | None = None
    accept: str = JSON
    deadline: float | None = None
    may_repeat: bool = False
    verb: Literal["", "PUT", "PATCH", "DELETE"] = ""
    headers: tuple[tuple[str, str], ...] = ()

    @property
    def method(self) -> str:
        """The HTTP method."""
        return self.verb or ("GET" if self.body is None else "POST")

    @property
    def content(self) -> Content:
        """The media types and the size of the bodies."""
        return Content(self.accept) if self.body is None else Content(self.accept, self.body.media_type, self.body.size)


def ops() -> Call[list[catalogue.ListedOp]]:
    """Request a summary of every op."""
    return Call("/v1/ops", catalogue.listed, may_repeat=True)


def contract(op: str) -> Call[catalogue.Contract]:
    """Request the contract of an op."""
    return Call(op_path(op), catalogue.contract, may_repeat=True)


def verdict(op: str) -> Call[catalogue.OpVerdict]:
    """Request the last verdict on an op."""
    return Call(op_path(op, "verdict"), catalogue.verdict, may_repeat=True)


def checks(ops: Iterable[str] | None, options: CheckOptions) -> Call[None]:
    """Request the checks of many ops; the response is a stream for ``reports.event``."""
    body = bodies.write_json({**selections(options), "ops": names("ops", ops)}, {})
    return Call("/v1/checks", nothing, body, accept=LINES, deadline=deadline_of(options))


def nothing(document: Mapping[str, Any]) -> None:
    """Read no result: that of a stream are its events, and a 204 has none."""


def deadline_of(options: Common | CheckOptions) -> float | None:
    """Return the deadline of a call, in seconds, ``None`` for no limit; raise ``BadArgument``."""
    return checked("deadline", options.get("deadline"))


def names(field: str, given: Iterable[Any] | None) -> tuple[str, ...] | None:
    """Return names as a tuple; refuse a single string, which would be split into letters."""
    if isinstance(given, str):
        raise BadArgument(f"{field}: expected a list of names, such as [{given!r}], got {given!r}")
    return None if given is None else tuple(given)


def selections(options: CheckOptions) -> dict[str, Any]:
    """Return the options of checks as fields of a body, with tuples for the iterables that select."""
    selected = {key: names(key, options.get(key)) for key in ("dtypes", "modes", "orders", "checks")}
    return {**options, "deadline": None, **selected}


@lru_cache(maxsize=1024)
def op_path(*parts: str) -> str:
    """Return the path of an op, or of an operation of it."""
    return "/".join(("/v1/ops", *map(segment, parts)))


def segment(name: str) -> str:
    """Quote a name, which a hostile server may have sent, as a segment of a path; raise ``BadArgument`` if not text."""
    try:
        return quote(name, safe="")
    except (TypeError, UnicodeError):
        raise BadArgument(f"expected a name, got {name!r}") from None
