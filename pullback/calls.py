"""Requests before they are sent, each with the way to read its answer: nothing here knows of connections."""

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
    """What every operation on an op may be given beside its tensors.

    ``attrs``: the op's attributes. ``dtype``: the dtype of its type variable; when it is not given and all arrays of a
    float dtype agree, theirs. ``mode``: graph, eager, xla or v1. ``device``: such as cpu or gpu:0.
    """

    attrs: Mapping[str, Any] | None
    dtype: str | None
    mode: str | None
    device: str | None


class CheckOptions(TypedDict, total=False):
    """How the gradient checks are made; what is not given is all of it.

    ``dtypes``, ``modes``, ``orders`` (1, 2) and ``checks`` choose; ``seed`` fixes what is drawn; ``tolerances``, a
    mapping with ``absolute`` and ``relative``, widens every comparison on top of error bars and rounding.
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
    """A request, and how its answer is read; ``body`` is missing in a GET."""

    path: str
    read: Callable[[Mapping[str, Any]], T]
    body: bytes | None = None

    @property
    def method(self) -> str:
        """GET or POST."""
        return "GET" if self.body is None else "POST"

    def headers(self, accept: str = "application/json") -> dict[str, str]:
        """Return the headers to send."""
        kind = {} if self.body is None else {"Content-Type": "application/json"}
        return {"Accept": accept, **kind}


def ops() -> Call[list[catalogue.OpSummary]]:
    """Ask for every op in a line."""
    return Call("/v1/ops", catalogue.summaries)


def contract(op: str) -> Call[catalogue.Contract]:
    """Ask for the contract of an op."""
    return Call(_path(op), catalogue.contract)


def forward(op: str, inputs: Arrays, common: Common) -> Call[answers.Forward]:
    """Ask for the outputs."""
    return _operation(op, "forward", answers.forward, common, {"inputs": inputs})


def gradients(
    op: str, inputs: Arrays, common: Common, *, order: int, cotangents: Arrays | None, wrt: Names
) -> Call[answers.Orders]:
    """Ask for the outputs and for gradients of several orders."""
    tensors = {"inputs": inputs, "cotangents": cotangents}
    return _operation(op, "gradients", answers.orders, common, tensors, order=order, wrt=_names("wrt", wrt))


def vjp(
    op: str, inputs: Arrays, common: Common, *, cotangents: Arrays | None, wrt: Names, outputs: bool, batched: bool
) -> Call[answers.Gradients]:
    """Ask for cotangents pulled back."""
    tensors = {"inputs": inputs, "cotangents": cotangents}
    fields = {"wrt": _names("wrt", wrt), "outputs": outputs, "batched": batched}
    return _operation(op, "vjp", answers.vjp, common, tensors, **fields)


def jvp(op: str, inputs: Arrays, common: Common, *, tangents: Arrays, batched: bool) -> Call[answers.Tangents]:
    """Ask for tangents pushed forward."""
    tensors = {"inputs": inputs, "tangents": tangents}
    return _operation(op, "jvp", answers.jvp, common, tensors, batched=batched)


def jacobian(op: str, inputs: Arrays, common: Common, *, of: Names, wrt: Names) -> Call[answers.Jacobian]:
    """Ask for every output by every input."""
    fields = {"of": _names("of", of), "wrt": _names("wrt", wrt)}
    return _operation(op, "jacobian", answers.jacobian, common, {"inputs": inputs}, **fields)


def hvp(
    op: str, inputs: Arrays, common: Common, *, vectors: Arrays, cotangents: Arrays | None, wrt: Names, batched: bool
) -> Call[answers.Products]:
    """Ask for products of the Hessian and vectors."""
    tensors = {"inputs": inputs, "vectors": vectors, "cotangents": cotangents}
    return _operation(op, "hvp", answers.hvp, common, tensors, wrt=_names("wrt", wrt), batched=batched)


def hessian(
    op: str, inputs: Arrays, common: Common, *, cotangents: Arrays | None, wrt: Names, diagonal: bool
) -> Call[answers.Hessian]:
    """Ask for the Hessian, or for its diagonal."""
    tensors = {"inputs": inputs, "cotangents": cotangents}
    return _operation(op, "hessian", answers.hessian, common, tensors, wrt=_names("wrt", wrt), diagonal=diagonal)


def check(
    op: str, inputs: Arrays | None, attrs: Mapping[str, Any] | None, options: CheckOptions
) -> Call[reports.Report]:
    """Ask for the checks of an op, at a point or at those that the service chooses."""
    body = {**_listed(options), **_encoded({"inputs": inputs}), "attrs": attrs}
    return Call(_path(op, "check"), reports.report, _dumped(body))


def verify(
    op: str,
    inputs: Arrays,
    gradients: Arrays,
    common: Common,
    *,
    cotangents: Arrays | None,
    tolerances: Mapping[str, float] | None,
) -> Call[reports.Verification]:
    """Ask whether gradients are those of an op."""
    tensors = {"inputs": inputs, "gradients": gradients, "cotangents": cotangents}
    body = {**common, **_with_dtype(common, tensors), "tolerances": tolerances}
    return Call(_path(op, "verify"), reports.verification, _dumped(body))


def checks(ops: Iterable[str] | None, options: CheckOptions) -> Call[None]:
    """Ask for the checks of many ops; the answer is a stream of ``reports.event``."""
    body = {**_listed(options), "ops": _names("ops", ops)}
    return Call("/v1/checks", lambda document: None, _dumped(body))


def _operation(
    op: str,
    name: str,
    read: Callable[[Mapping[str, Any]], T],
    common: Common,
    tensors: Mapping[str, Arrays | None],
    **fields: Any,
) -> Call[T]:
    body = {**fields, **common, **_with_dtype(common, tensors), "encoding": "base64"}
    return Call(_path(op, name), read, _dumped(body))


def _with_dtype(common: Common, tensors: Mapping[str, Arrays | None]) -> dict[str, Any]:
    """Return the tensors as JSON has them, and the dtype that is asked for or that they agree on."""
    encoded = _encoded(tensors)
    found: list[Any] = [tensor for named in encoded.values() if named is not None for tensor in named.values()]
    return {"dtype": common.get("dtype") or arrays.shared_float(found), **encoded}


def _names(field: str, names: Names) -> list[str] | None:
    """Return names as a list; one string would be read letter by letter."""
    if isinstance(names, str):
        raise BadArgument(f"{field}: expected a list of names, such as [{names!r}], got {names!r}")
    return None if names is None else list(names)


def _listed(options: CheckOptions) -> dict[str, Any]:
    chosen = {key: options.get(key) for key in ("dtypes", "modes", "orders", "checks")}
    listed = {key: _names(key, value) for key, value in chosen.items()}
    return {**options, **listed}


def _path(*parts: str) -> str:
    return "/".join(("/v1/ops", *(quote(part, safe="") for part in parts)))


def _encoded(tensors: Mapping[str, Arrays | None]) -> dict[str, dict[str, Any] | None]:
    return {
        field: None if named is None else {name: arrays.encode(x, f"{field}.{name}") for name, x in named.items()}
        for field, named in tensors.items()
    }


def _dumped(body: Mapping[str, Any]) -> bytes:
    """Write a body; what is not given is left to the service."""
    given = {key: value for key, value in body.items() if value is not None}
    if "attrs" in given:
        given["attrs"] = {name: plain(value) for name, value in given["attrs"].items()}
    try:
        return json.dumps(given, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_scalar).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BadArgument(f"an argument cannot be written as JSON: {error}") from error


def _scalar(value: Any) -> Any:
    """Return a scalar of NumPy, such as an order or a seed, as Python's own."""
    try:
        return value.item()
    except AttributeError:
        raise TypeError(f"expected numbers, strings, lists or arrays, got {type(value).__name__}") from None
