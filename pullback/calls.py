"""Requests, each with the function that reads its response. This module does no I/O."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeAlias, TypedDict, TypeVar
from urllib.parse import quote

from pullback import answers, bodies, catalogue, reports, safetensors
from pullback.arrays import Arrays, array_or_json, shared_float
from pullback.bodies import JSON, Body
from pullback.errors import BadArgument
from pullback.limits import Limit, checked

T = TypeVar("T")
Names: TypeAlias = Iterable[Any] | None

LINES = "application/x-ndjson"


class Common(TypedDict, total=False):
    """Arguments that every operation accepts beside its tensors.

    ``attrs``: the op's attributes. ``dtype``: the dtype of its type variable; by default that of the float arrays,
    if they agree. ``mode``: graph, eager, xla or v1. ``device``: such as cpu or gpu:0. ``deadline``: the seconds that
    the whole call may take, with its retries, its connection and a first look at the contract; the service stops
    working on it then. ``None`` and infinity set no limit.
    """

    attrs: Mapping[str, Any] | None
    dtype: str | None
    mode: str | None
    device: str | None
    deadline: float | None


class CheckOptions(TypedDict, total=False):
    """Options of the gradient checks.

    ``dtypes``, ``modes``, ``orders`` (1, 2) and ``checks`` each select, by default everything; ``seed`` fixes the
    random draws; ``tolerances``, a mapping with ``absolute`` and ``relative``, widens every comparison on top of error
    bars and rounding; ``deadline``, in seconds, ends the checks, and what is not checked by then is in the report.
    """

    dtypes: Sequence[str] | None
    modes: Sequence[str] | None
    orders: Sequence[int] | None
    checks: Sequence[str] | None
    device: str | None
    seed: int | None
    tolerances: Mapping[str, float] | None
    deadline: float | None


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
    first byte of the response, the client sends it once more.
    """

    path: str
    read: Callable[[Mapping[str, Any]], T]
    body: Body | None = None
    accept: str = JSON
    deadline: float | None = None
    may_repeat: bool = False

    @property
    def method(self) -> str:
        """The HTTP method, GET or POST."""
        return "GET" if self.body is None else "POST"

    @property
    def content(self) -> Content:
        """The media types and the size of the bodies."""
        return Content(self.accept) if self.body is None else Content(self.accept, self.body.media_type, self.body.size)


def ops() -> Call[list[catalogue.OpSummary]]:
    """Request a summary of every op."""
    return Call("/v1/ops", catalogue.summaries, may_repeat=True)


def contract(op: str) -> Call[catalogue.Contract]:
    """Request the contract of an op."""
    return Call(_path(op), catalogue.contract, may_repeat=True)


def forward(op: str, inputs: Arrays, common: Common) -> Call[answers.Forward]:
    """Request the outputs."""
    return _operation(op, "forward", answers.forward, common, {"inputs": inputs})


def gradients(
    op: str, inputs: Arrays, common: Common, *, order: int, cotangents: Arrays | None, wrt: Names
) -> Call[answers.Orders]:
    """Request the outputs and the gradients of several orders."""
    tensors = {"inputs": inputs, "cotangents": cotangents}
    return _operation(op, "gradients", answers.orders, common, tensors, order=order, wrt=_names("wrt", wrt))


def vjp(
    op: str, inputs: Arrays, common: Common, *, cotangents: Arrays | None, wrt: Names, outputs: bool, batched: bool
) -> Call[answers.Gradients]:
    """Request cotangents pulled back to the inputs."""
    tensors = {"inputs": inputs, "cotangents": cotangents}
    fields = {"wrt": _names("wrt", wrt), "outputs": outputs, "batched": batched}
    return _operation(op, "vjp", answers.vjp, common, tensors, **fields)


def jvp(op: str, inputs: Arrays, common: Common, *, tangents: Arrays, batched: bool) -> Call[answers.Tangents]:
    """Request tangents pushed forward to the outputs."""
    tensors = {"inputs": inputs, "tangents": tangents}
    return _operation(op, "jvp", answers.jvp, common, tensors, batched=batched)


def jacobian(op: str, inputs: Arrays, common: Common, *, of: Names, wrt: Names) -> Call[answers.Jacobian]:
    """Request the derivatives of outputs by inputs."""
    fields = {"of": _names("of", of), "wrt": _names("wrt", wrt)}
    return _operation(op, "jacobian", answers.jacobian, common, {"inputs": inputs}, **fields)


def hvp(
    op: str, inputs: Arrays, common: Common, *, vectors: Arrays, cotangents: Arrays | None, wrt: Names, batched: bool
) -> Call[answers.Products]:
    """Request Hessian-vector products."""
    tensors = {"inputs": inputs, "vectors": vectors, "cotangents": cotangents}
    return _operation(op, "hvp", answers.hvp, common, tensors, wrt=_names("wrt", wrt), batched=batched)


def hessian(
    op: str, inputs: Arrays, common: Common, *, cotangents: Arrays | None, wrt: Names, diagonal: bool
) -> Call[answers.Hessian]:
    """Request the Hessian, or its diagonal."""
    tensors = {"inputs": inputs, "cotangents": cotangents}
    read = answers.diagonal if diagonal else answers.hessian
    return _operation(op, "hessian", read, common, tensors, wrt=_names("wrt", wrt), diagonal=diagonal)


def check(
    op: str, inputs: Arrays | None, attrs: Mapping[str, Any] | None, options: CheckOptions
) -> Call[reports.Report]:
    """Request the checks of an op, at a point or at points that the service chooses."""
    fields = {**_selections(options), "attrs": attrs}
    body = bodies.write_json(fields, _tensors({"inputs": inputs}))
    return Call(_path(op, "check"), reports.report, body, deadline=_deadline(options), may_repeat=True)


def verify(
    op: str,
    inputs: Arrays,
    gradients: Arrays,
    common: Common,
    *,
    cotangents: Arrays | None,
    tolerances: Mapping[str, float] | None,
) -> Call[reports.Verification]:
    """Request a comparison of gradients with those of an op."""
    tensors = _tensors({"inputs": inputs, "gradients": gradients, "cotangents": cotangents})
    body = bodies.write_json({**_fields(common, tensors), "tolerances": tolerances}, tensors)
    return Call(_path(op, "verify"), reports.verification, body, deadline=_deadline(common), may_repeat=True)


def checks(ops: Iterable[str] | None, options: CheckOptions) -> Call[None]:
    """Request the checks of many ops; the response is a stream for ``reports.event``."""
    body = bodies.write_json({**_selections(options), "ops": _names("ops", ops)}, {})
    return Call("/v1/checks", _nothing, body, accept=LINES, deadline=_deadline(options))


def _nothing(document: Mapping[str, Any]) -> None:
    """Read no result: that of a stream are its events."""


def _operation(
    op: str,
    name: str,
    read: Callable[[Mapping[str, Any]], T],
    common: Common,
    tensors: Mapping[str, Arrays | None],
    **fields: Any,
) -> Call[T]:
    values = _tensors(tensors)
    body = bodies.write({**fields, **_fields(common, values), "encoding": "base64"}, values)
    # The results of these two are larger than the request.
    accept = safetensors.MEDIA_TYPE if name in ("jacobian", "hessian") else body.media_type
    return Call(_path(op, name), read, body, accept, _deadline(common), may_repeat=True)


def _fields(common: Common, tensors: bodies.Tensors) -> dict[str, Any]:
    """Return the fields that describe the tensors; the dtype is the one requested, or the one that they share."""
    return {**common, "deadline": None, "dtype": common.get("dtype") or shared_float(tensors.values())}


def _tensors(tensors: Mapping[str, Arrays | None]) -> bodies.Tensors:
    return {
        field: {name: array_or_json(x, f"{field}.{name}") for name, x in named.items()}
        for field, named in tensors.items()
        if named is not None
    }


def limit(options: Common | CheckOptions) -> Limit:
    """Start the time that a call with these options may take."""
    return Limit(_deadline(options))


def _deadline(options: Common | CheckOptions) -> float | None:
    return checked("deadline", options.get("deadline"))


def _names(field: str, names: Names) -> tuple[str, ...] | None:
    """Return names as a tuple; refuse a single string, which would be split into letters."""
    if isinstance(names, str):
        raise BadArgument(f"{field}: expected a list of names, such as [{names!r}], got {names!r}")
    return None if names is None else tuple(names)


def _selections(options: CheckOptions) -> dict[str, Any]:
    """Return the options, with lists for the iterables that select."""
    selections = {key: _names(key, options.get(key)) for key in ("dtypes", "modes", "orders", "checks")}
    return {**{key: value for key, value in options.items() if key != "deadline"}, **selections}


@lru_cache(maxsize=1024)
def _path(*parts: str) -> str:
    return "/".join(("/v1/ops", *(quote(part, safe="") for part in parts)))
