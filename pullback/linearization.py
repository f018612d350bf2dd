"""An op at a point: the service keeps its forward pass there, for many products with its derivatives.

The service may forget it at any time, or not keep it at all. The inputs are kept here, and then sent with each product.
"""

import contextlib
import copy
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar, cast

from pullback import results
from pullback.arrays import ArrayLike, Arrays, array_or_json, shared_float
from pullback.bodies import write_json
from pullback.calls import Call, Common, nothing, op_path, segment
from pullback.coroutines import run
from pullback.errors import BadArgument, Gone, NotFound
from pullback.op_calls import COTANGENTS, INPUTS, TANGENTS, VECTORS, OpCall, Positional, TensorField, evaluation
from pullback.op_methods import Awaited, BaseOp, Blocking, method
from pullback.results import Gradients, Products, Reader, Tangents

T = TypeVar("T")
Tensors: TypeAlias = Arrays | ArrayLike
PATH = "/v1/linearizations"
FREE_S = 2.0
"""How long the end of a block waits for the service to free the memory; it does so by itself later."""


class BaseLinearization:
    """An op at a point. ``id`` is ``None`` if the service does not keep it, and ``reason`` says why.

    The inputs are copied: changing the arrays afterwards changes nothing. A copy made by pickle uses the same forward
    pass, with the key of its client, until the block here ends.
    """

    def __init__(self, op: BaseOp, inputs: Sequence[Any], wrt: Sequence[str] | None, common: Common) -> None:
        """Take the op and its inputs, by name or in order; this sends nothing."""
        given = [_copied(x) for x in inputs]
        self._inputs = Positional(tuple(given)) if len(given) > 1 else given[0]
        arrays: list[Mapping[str, Any]] = [x if isinstance(x, Mapping) else {"": x} for x in given]
        self._op, self._wrt = op, wrt
        # Else directions of another dtype would select it, where the service has forgotten that of the inputs.
        self._common: Common = {**common, "dtype": common.get("dtype") or shared_float(arrays)}
        self._found: results.Linearized | None = None
        self._is_copy = False
        self.id: str | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return a state of a copy, whose block is that of the original."""
        return {**vars(self), "_is_copy": True}

    @property
    def outputs(self) -> dict[str, Any]:
        """The outputs at the point, by name."""
        return self._opened.outputs

    @property
    def reason(self) -> str:
        """Why the service did not keep the forward pass, empty if it did."""
        return self._opened.reason

    @method
    def vjp(self, cotangents: Tensors | None = None, *, batched: bool = False) -> OpCall[Gradients]:
        """Return cotangents (by default ones) pulled back to the inputs; if ``batched``, along a leading axis."""
        return self._product("vjp", results.vjp, {COTANGENTS: cotangents}, batched=batched)

    @method
    def jvp(self, tangents: Tensors, *, batched: bool = False) -> OpCall[Tangents]:
        """Return tangents of the inputs pushed forward to the outputs."""
        return self._product("jvp", results.jvp, {TANGENTS: tangents}, batched=batched)

    @method
    def hvp(self, cotangents: Tensors | None, vectors: Tensors, *, batched: bool = False) -> OpCall[Products]:
        """Return Hᵀv, the products of the derivative of the vjp with these cotangents (None: ones) and the vectors."""
        return self._product("hvp", results.hvp, {COTANGENTS: cotangents, VECTORS: vectors}, batched=batched)

    @method
    def renew(self, expires_s: float) -> Call[float]:
        """Let the service keep the forward pass for so many seconds from now on; return how many it does.

        It is 0 if the service keeps none. Raises ``Unprocessable`` for more than 6 hours, or 10 minutes where the key
        has much of the room.
        """
        _ = self._opened
        return Call("", _expires_s, write_json({"expires_s": float(expires_s)}, {}), may_repeat=True, verb="PATCH")

    async def result(self, call: OpCall[T] | Call[T]) -> T:
        """Return the result of a product: at the forward pass that is kept, or else from the inputs.

        Where the service has forgotten the forward pass, it computes and keeps it again.
        """
        for _ in range(2):
            if self.id is None:
                break
            try:
                return await self._op.result(_there(call, self.id))
            except (Gone, NotFound):
                self.id = None  # calls at the same time send the inputs
                if not self._is_copy:
                    await self._linearize()
        if isinstance(call, Call):
            return call.read({})
        return await self._op.result(call)

    @property
    def _opened(self) -> results.Linearized:
        if self._found is None:
            raise BadArgument("expected a linearization in its block: with op.linearize(x) as at")
        return self._found

    def _product(self, name: str, read: Reader[T], directions: dict[TensorField, Any], *, batched: bool) -> OpCall[T]:
        """Return the call of the op's own operation, in the dtype and the mode of the forward pass that was kept."""
        _ = self._opened
        options: dict[str, Any] = {"batched": batched} | ({} if name == "jvp" else {"wrt": self._wrt})
        call = evaluation(
            op_path(self._op.name, name), read, {INPUTS: self._inputs, **directions}, self._common, options
        )
        return call if call.fields["dtype"] else call._replace(fields=_without(call.fields, "dtype"))

    async def _open(self) -> None:
        """Let the service compute the outputs."""
        self._found = await self._linearize()

    async def _linearize(self) -> results.Linearized:
        call = evaluation(
            op_path(self._op.name, "linearize"),
            results.linearized,
            {INPUTS: self._inputs},
            self._common,
            {"wrt": self._wrt},
        )
        found = await self._op.result(call)
        self.id = found.id
        if self.id is not None:
            self._common = {**self._common, "mode": "graph"}
        return found

    async def _close(self) -> None:
        """Free the forward pass, if the service can be told."""
        name, self.id = self.id, None
        if name is not None:
            # The client may be closed, and an httpx client then raises errors of its own.
            with contextlib.suppress(Exception):
                await self._op.result(Call(_path(name), nothing, deadline=FREE_S, may_repeat=True, verb="DELETE"))


class Linearization(Blocking, BaseLinearization):
    """An op at a point, for ``with``."""

    def __enter__(self) -> Self:
        run(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        run(self._close())


class AsyncLinearization(Awaited, BaseLinearization):
    """An op at a point, for ``async with``; its methods are coroutines."""

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._close()


def _there(call: OpCall[T] | Call[T], name: str) -> OpCall[T] | Call[T]:
    """Return the call of a product at a linearization, or of its renewal."""
    if isinstance(call, Call):
        return call._replace(path=_path(name))
    tensors = {field: x for field, x in call.tensors.items() if field is not INPUTS}
    fields = {field: call.fields[field] for field in ("batched", "encoding")}
    return call._replace(path=f"{_path(name)}/{call.path.rpartition('/')[2]}", tensors=tensors, fields=fields)


def _path(name: str) -> str:
    return f"{PATH}/{segment(name)}"


def _expires_s(document: Mapping[str, Any]) -> float:
    about: Mapping[str, Any] = document.get("linearization") or {}
    return float(about.get("expires_s", 0))


def _without(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {field: value for field, value in fields.items() if field != name}


def _copied(value: Tensors) -> Any:
    """Return a copy of a tensor, or of tensors by name; raise ``BadArgument`` for what is no tensor."""
    if isinstance(value, Mapping):
        return {name: _copied(x) for name, x in cast(Arrays, value).items()}
    return copy.deepcopy(array_or_json(value, "inputs"))
