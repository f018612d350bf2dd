"""Requests, each with the function that reads its response. This module does no I/O."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypedDict, TypeVar
from urllib.parse import quote

from pullback import answers, arrays, catalogue, reports
from pullback.arrays import Arrays, plain
from pullback.errors import BadArgument

T = TypeVar("T")
Names: TypeAlias = Iterable[Any] | None

LINES = "application/x-ndjson"


class Common(TypedDict, total=False):
    """Arguments that every operation accepts beside its tensors.

    ``attrs``: the op's attributes. ``dtype``: the dtype of its type variable; by default that of the float arrays,
    if they agree. ``mode``: graph, eager, xla or v1. ``device``: such as cpu or gpu:0.
    """

    attrs: Mapping[str, Any] | None
    dtype: str | None
    mode: str | None
    device: str | None


class CheckOptions(TypedDict, total=False):
    """Options of the gradient checks.

    ``dtypes``, ``modes``, ``orders`` (1, 2) and ``checks`` each select, by default everything; ``seed`` fixes the
    random draws; ``tolerances``, a mapping with ``absolute`` and ``relative``, widens every comparison on top of error
    bars and rounding.
    """

    dtypes: Sequence[str] | None
    modes: Sequence[str] | None
    orders: Sequence[int] | None
    checks: Sequence[str] | None
    device: str | None
    seed: int | None
    tolerances: Mapping[str, float] | None


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request, and the function that reads its response; a GET has no ``body``."""

    path: str
    read: Callable[[Mapping[str, Any]], T]
    body: bytes | None = None

    @property
    def method(self) -> str:
        """The HTTP method, GET or POST."""
        return "GET" if self.body is None else "POST"

    def headers(self, accept: str = "application/json") -> dict[str, str]:
        """Return the headers to send."""
        kind = {} if self.body is None else {"Content-Type": "application/json"}
        return {"Accept": accept, **kind}


def ops() -> Call[list[catalogue.OpSummary]]:
    """Request a summary of every op."""
    return Call("/v1/ops", catalogue.summaries)


def contract(op: str) -> Call[catalogue.Contract]:
    """Request the contract of an op."""
    return Call(_path(op), catalogue.contract)


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
    return _operation(op, "hessian", answers.hessian, common, tensors, wrt=_names("wrt", wrt), diagonal=diagonal)


def check(
    op: str, inputs: Arrays | None, attrs: Mapping[str, Any] | None, options: CheckOptions
) -> Call[reports.Report]:
    """Request the checks of an op, at a point or at points that the service chooses."""
    body = {**_selections(options), **_encode({"inputs": inputs}), "attrs": attrs}
    return Call(_path(op, "check"), reports.report, _dump(body))


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
    tensors = {"inputs": inputs, "gradients": gradients, "cotangents": cotangents}
    body = {**common, **_with_dtype(common, tensors), "tolerances": tolerances}
    return Call(_path(op, "verify"), reports.verification, _dump(body))


def checks(ops: Iterable[str] | None, options: CheckOptions) -> Call[None]:
    """Request the checks of many ops; the response is a stream for ``reports.event``."""
    body = {**_selections(options), "ops": _names("ops", ops)}
    return Call("/v1/checks", lambda document: None, _dump(body))


def _operation(
    op: str,
    name: str,
    read: Callable[[Mapping[str, Any]], T],
    common: Common,
    tensors: Mapping[str, Arrays | None],
    **fields: Any,
) -> Call[T]:
    body = {**fields, **common, **_with_dtype(common, tensors), "encoding": "base64"}
    return Call(_path(op, name), read, _dump(body))


def _with_dtype(common: Common, tensors: Mapping[str, Arrays | None]) -> dict[str, Any]:
    """Return the tensors as JSON, and the requested dtype, or the one that they share."""
    encoded = _encode(tensors)
    values: list[Any] = [tensor for named in encoded.values() if named is not None for tensor in named.values()]
    return {"dtype": common.get("dtype") or arrays.shared_float(values), **encoded}


def _names(field: str, names: Names) -> list[str] | None:
    """Return names as a list; refuse a single string, which would be split into letters."""
    if isinstance(names, str):
        raise BadArgument(f"{field}: expected a list of names, such as [{names!r}], got {names!r}")
    return None if names is None else list(names)


def _selections(options: CheckOptions) -> dict[str, Any]:
    """Return the options, with lists for the iterables that select."""
    selections = {key: _names(key, options.get(key)) for key in ("dtypes", "modes", "orders", "checks")}
    return {**options, **selections}


def _path(*parts: str) -> str:
    return "/".join(("/v1/ops", *(quote(part, safe="") for part in parts)))


def _encode(tensors: Mapping[str, Arrays | None]) -> dict[str, dict[str, Any] | None]:
    return {
        field: None if named is None else {name: arrays.encode(x, f"{field}.{name}") for name, x in named.items()}
        for field, named in tensors.items()
    }


def _dump(body: Mapping[str, Any]) -> bytes:
    """Return a body as JSON, without the fields that are ``None``: the service has the defaults."""
    fields = {key: value for key, value in body.items() if value is not None}
    if "attrs" in fields:
        fields["attrs"] = {name: plain(value) for name, value in fields["attrs"].items()}
    try:
        return json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_scalar).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadArgument(f"cannot write an argument as JSON: {error}") from error


def _scalar(value: Any) -> Any:
    """Return a NumPy scalar, such as an order or a seed, as a Python number."""
    try:
        return value.item()
    except AttributeError:
        raise TypeError(f"expected numbers, strings, lists or arrays, got {type(value).__name__}") from None
