"""An op of a service: its methods, from which both clients and the command line derive.

An operation is a method with the decorator ``operation``, and its result a class in ``results.py``: nothing else in
this package names it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import Parameter
from typing import Any, ParamSpec, TypeAlias, TypeVar, Unpack, cast

from pullback import bodies, calls, op_calls, reports, results
from pullback.arrays import ArrayLike, Arrays
from pullback.calls import Call, CheckOptions, Common, Pointwise, deadline_of, names, op_path, selections
from pullback.catalogue import Contract, OpVerdict
from pullback.compose import apply_document, put
from pullback.dtypes import Array
from pullback.errors import BadArgument, NotFound
from pullback.graph_values import Document, Operand, Value, apply
from pullback.limits import Limit
from pullback.linearization import AsyncLinearization, Linearization
from pullback.op_calls import COTANGENTS, INPUTS, TANGENTS, VECTORS, OpCall, Positional, TensorField, evaluation
from pullback.op_methods import AsyncioOp, BaseOp, BlockingOp, method
from pullback.reports import Report, Verification
from pullback.results import Forward, Gradients, Hessian, Jacobian, Numeric, Orders, Products, Tangents

P = ParamSpec("P")
T = TypeVar("T")
Tensors: TypeAlias = Arrays | ArrayLike
Names: TypeAlias = Sequence[str] | None

GRADIENTS = TensorField("gradients", "inputs", ("g",))
FIELDS = {field.name: field for field in (INPUTS, COTANGENTS, TANGENTS, VECTORS, GRADIENTS)}
OPTIONS = {
    "order": "the highest order, 1 to 4; of numeric, 1 or 2",
    "wrt": "an input to differentiate by; repeatable",
    "of": "an output to differentiate; repeatable",
    "diagonal": "only the diagonal",
    "sparse": "coo or csr: sparse matrices",
    "sparsity": "the id of a sparsity that an earlier answer has",
    "outputs": "return the outputs too",
    "batched": "many directions at once",
    "claim": "of what the gradient claims to be",
}
"""What the options of the operations mean, for the help of the command line."""


class operation(method[P, T]):
    """A method that evaluates the op or a derivative of it."""

    @property
    def tensors(self) -> list[TensorField]:
        """The fields of tensors beside the inputs."""
        return [FIELDS[name] for name in self.signature.parameters if name in FIELDS and name != "inputs"]

    @property
    def options(self) -> dict[str, Any]:
        """The type of each option, by name."""
        parameters = self.signature.parameters.values()
        return {p.name: p.annotation for p in parameters if p.kind is Parameter.KEYWORD_ONLY and p.name not in FIELDS}


class Operations(BaseOp):
    """The methods of an op, in the forms of ``Op`` and ``AsyncOp``."""

    def __call__(self, *inputs: Operand, **given: Any) -> Any:
        """Call the op inside a function that ``compose`` traces: inputs by position, or by name, and attributes.

        A composition adds its ops to the one that is traced, and returns a dictionary if it has several outputs.
        Raises ``BadArgument`` elsewhere.
        """
        return self._apply(inputs, given)

    def _apply(self, inputs: Sequence[Any], given: Mapping[str, Any]) -> Any:
        named = {name: value for name, value in given.items() if isinstance(value, Value)}
        if inputs and named:
            got = f"{len(inputs)} by position and {', '.join(named)} by name"
            raise BadArgument(f"op {self.name}: expected all inputs by position, or all by name, got {got}")
        attrs = {name: value for name, value in given.items() if name not in named}
        return apply(self.name, inputs, named or None, attrs)

    @method
    def contract(self) -> Call[Contract]:
        """Return the contract: formulas, kinks, shapes, dtypes, attributes, examples."""
        return calls.contract(self.name)

    @method
    def put_parameters(self, values: Mapping[str, ArrayLike], *, deadline: float | None = None) -> Call[str]:
        """Put arrays for all parameters on the service, and return their digest, for ``parameters`` of other calls.

        The dtypes are those of the contract. The service may forget them, as it says by ``NotFound`` later.
        """
        return op_calls.put(self.name, values, deadline)

    @method
    def parameters(self, digest: str, *, deadline: float | None = None) -> Call[dict[str, Array]]:
        """Return the values of the parameters with a digest, such as ``parameters_digest`` of the contract."""
        return op_calls.get(self.name, digest, deadline)

    @method
    def verdict(self) -> Call[OpVerdict]:
        """Return the last check of the whole op, and whether it has changed since; ``NotFound`` if there is none."""
        return calls.verdict(self.name)

    @operation
    def forward(self, inputs: Tensors, *others: ArrayLike, **common: Unpack[Pointwise]) -> OpCall[Forward]:
        """Return the outputs. Several arrays are the inputs in the order of the contract, ``None`` an optional one."""
        given = Positional((inputs, *others)) if others else inputs
        return evaluation(op_path(self.name, "forward"), results.forward, {INPUTS: given}, common, {})

    @operation
    def gradients(
        self,
        inputs: Tensors,
        *,
        order: int = 1,
        cotangents: Tensors | None = None,
        wrt: Names = None,
        **common: Unpack[Pointwise],
    ) -> OpCall[Orders]:
        """Return the outputs and the gradients of order 1 to ``order``, at most 4.

        The first is weighted by ``cotangents``; each further one is that of the sum of the previous one's entries.
        """
        tensors, options = {INPUTS: inputs, COTANGENTS: cotangents}, {"order": order, "wrt": names("wrt", wrt)}
        return evaluation(op_path(self.name, "gradients"), results.orders, tensors, common, options)

    @operation
    def vjp(
        self,
        inputs: Tensors,
        *,
        cotangents: Tensors | None = None,
        wrt: Names = None,
        outputs: bool = False,
        batched: bool = False,
        **common: Unpack[Pointwise],
    ) -> OpCall[Gradients]:
        """Return cotangents (by default ones) pulled back to the inputs, and the outputs if requested.

        With ``batched``, cotangents and gradients have a leading axis.
        """
        options = {"wrt": names("wrt", wrt), "outputs": outputs, "batched": batched}
        return evaluation(
            op_path(self.name, "vjp"), results.vjp, {INPUTS: inputs, COTANGENTS: cotangents}, common, options
        )

    @operation
    def jvp(
        self, inputs: Tensors, *, tangents: Tensors, batched: bool = False, **common: Unpack[Pointwise]
    ) -> OpCall[Tangents]:
        """Return tangents of the inputs pushed forward to the outputs."""
        tensors, options = {INPUTS: inputs, TANGENTS: tangents}, {"batched": batched}
        return evaluation(op_path(self.name, "jvp"), results.jvp, tensors, common, options)

    @operation
    def jacobian(
        self,
        inputs: Tensors,
        *,
        of: Names = None,
        wrt: Names = None,
        sparse: str | None = None,
        sparsity: str | None = None,
        **common: Unpack[Pointwise],
    ) -> OpCall[Jacobian]:
        """Return the derivatives of all outputs, or those in ``of``, by all inputs, or those in ``wrt``.

        With ``sparse``, "coo" or "csr", they are sparse matrices; ``sparsity`` is the id of an earlier answer.
        """
        options = {"of": names("of", of), "wrt": names("wrt", wrt), "sparse": sparse, "sparsity": sparsity}
        read = results.sparse_jacobian if sparse else results.jacobian
        return evaluation(op_path(self.name, "jacobian"), read, {INPUTS: inputs}, common, options, is_larger=True)

    @operation
    def hvp(
        self,
        inputs: Tensors,
        *,
        vectors: Tensors,
        cotangents: Tensors | None = None,
        wrt: Names = None,
        batched: bool = False,
        **common: Unpack[Pointwise],
    ) -> OpCall[Products]:
        """Return Hᵀv, the products of the derivative of the vjp and the vectors."""
        tensors = {INPUTS: inputs, VECTORS: vectors, COTANGENTS: cotangents}
        options = {"wrt": names("wrt", wrt), "batched": batched}
        return evaluation(op_path(self.name, "hvp"), results.hvp, tensors, common, options)

    @operation
    def hessian(
        self,
        inputs: Tensors,
        *,
        cotangents: Tensors | None = None,
        wrt: Names = None,
        diagonal: bool = False,
        sparse: str | None = None,
        sparsity: str | None = None,
        **common: Unpack[Pointwise],
    ) -> OpCall[Hessian]:
        """Return the derivative of the vjp, or only its ``diagonal``, for an elementwise op.

        With ``sparse``, "coo" or "csr", it has sparse matrices; ``sparsity`` is the id of an earlier answer.
        """
        tensors = {INPUTS: inputs, COTANGENTS: cotangents}
        options = {"wrt": names("wrt", wrt), "diagonal": diagonal, "sparse": sparse, "sparsity": sparsity}
        read = results.diagonal if diagonal else results.sparse_hessian if sparse else results.hessian
        return evaluation(op_path(self.name, "hessian"), read, tensors, common, options, is_larger=True)

    @operation
    def numeric(
        self,
        inputs: Tensors,
        *,
        order: int = 1,
        cotangents: Tensors | None = None,
        tangents: Tensors | None = None,
        wrt: Names = None,
        claim: bool = False,
        **common: Unpack[Common],
    ) -> OpCall[Numeric]:
        """Return numeric derivatives with error bars, of order 1 or 2: by each number, or along tangents.

        Order 2 is that of the op's own vjp. With ``claim``, they are those of what the gradient claims to be.
        """
        path, limit = op_path(self.name, "numeric"), Limit(deadline_of(common))
        tensors = {INPUTS: inputs, COTANGENTS: cotangents, TANGENTS: tangents}
        options = {"order": order, "wrt": names("wrt", wrt), "claim": claim}
        fields = {**options, **common, "deadline": None, "dtype": common.get("dtype")}
        return OpCall(path, results.numeric, limit, tensors, fields, bodies.write_json)

    @method
    def check(
        self,
        inputs: Tensors | None = None,
        *,
        attrs: Mapping[str, Any] | None = None,
        **options: Unpack[CheckOptions],
    ) -> OpCall[Report]:
        """Check the gradients at a point, by default at the op's examples and at points drawn from its domain."""
        path, limit = op_path(self.name, "check"), Limit(deadline_of(options))
        fields = {**selections(options), "attrs": attrs}
        return OpCall(path, reports.report, limit, {INPUTS: inputs}, fields, bodies.write_json)

    @method
    def verify(
        self,
        inputs: Tensors,
        gradients: Tensors,
        *,
        cotangents: Tensors | None = None,
        tolerances: Mapping[str, float] | None = None,
        **common: Unpack[Common],
    ) -> OpCall[Verification]:
        """Compare your gradients, by input, with the op's own in its widest dtype."""
        path, limit = op_path(self.name, "verify"), Limit(deadline_of(common))
        tensors = {INPUTS: inputs, GRADIENTS: gradients, COTANGENTS: cotangents}
        fields = {**common, "deadline": None, "dtype": common.get("dtype"), "tolerances": tolerances}
        return OpCall(path, reports.verification, limit, tensors, fields, bodies.write_json)


OPERATIONS = cast(
    "Mapping[str, operation[..., Any]]",
    {name: made for name, made in vars(Operations).items() if isinstance(made, operation)},
)
"""The operations by name."""


class Op(Operations, BlockingOp):
    """An op of a service.

    Pass arrays by name; an array may come without its name where the op has only one input, or output. Arrays with a
    dtype are sent exactly, in that dtype; lists and scalars take the dtype that the op expects. ``calls.Common``
    documents the other keywords: ``attrs``, ``dtype``, ``mode``, ``device``, ``deadline``; ``calls.Pointwise`` those of
    requests at many points, ``points`` and ``partial``, and ``digits``.
    """

    def linearize(
        self, inputs: Tensors, *others: ArrayLike, wrt: Names = None, **common: Unpack[Common]
    ) -> Linearization:
        """Return the op at a point, for ``with``: its forward pass is computed once for many products there."""
        return Linearization(self, (inputs, *others), names("wrt", wrt), common)


class AsyncOp(Operations, AsyncioOp):
    """An op of a service, whose methods are coroutines, with the arguments and results of ``Op``."""

    def linearize(
        self, inputs: Tensors, *others: ArrayLike, wrt: Names = None, **common: Unpack[Common]
    ) -> AsyncLinearization:
        """Return the op at a point, for ``async with``: its forward pass is computed once for many products there."""
        return AsyncLinearization(self, (inputs, *others), names("wrt", wrt), common)


class _Composition(BaseOp):
    """A composition of ops: the service gets its document again if it no longer has it."""

    def __init__(self, client: Any, name: str, document: Document) -> None:
        """Set the client, the name, and the document that has it."""
        super().__init__(client, name)
        self.document = document

    def _apply(self, inputs: Sequence[Any], given: Mapping[str, Any]) -> Any:
        """Add the nodes of the composition to the graph; return its output, or a dictionary of them."""
        return apply_document(self.document, inputs, given)

    async def _send(self, call: Call[T], limit: Limit) -> T:
        return await self._send_with(super()._send, call, limit)

    async def _send_with(self, send: Callable[[Call[Any], Limit], Awaitable[Any]], call: Call[T], limit: Limit) -> T:
        try:
            return await send(call, limit)
        except NotFound:
            await send(put(self.document, self.name), limit)
            return await send(call, limit)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._client, self.name, self.document)


class ComposedOp(_Composition, Op):
    """A composition of ops: an op of a service, which gets its document again if it no longer has it."""


class AsyncComposedOp(_Composition, AsyncOp):
    """A composition of ops, whose methods are coroutines, with the arguments and results of ``ComposedOp``."""
