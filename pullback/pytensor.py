"""Ops of a service as ops of PyTensor: ``grad``, ``jacobian``, ``hessian``, ``vectorize`` and PyMC's samplers work.

::

    import pullback.pytensor

    log1pexp = pullback.pytensor.remote("log1pexp", url="http://127.0.0.1:8000")
    pytensor.grad(log1pexp(x).sum(), x)

The gradient of each op is the op one derivation further. PyTensor 3 renamed the methods of derivatives, so each has two
names here.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.link.numba.dispatch.basic import generate_fallback_impl, numba_funcify
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.exceptions import ShapeError
from pytensor.tensor.rewriting.basic import register_specialize
from pytensor.tensor.type import float_dtypes

from pullback.graph_values import is_traced
from pullback.remotes import Derivative, Function, TensorType, batch, evaluate, refuse_complex

try:
    from pytensor.link.jax.dispatch import jax_funcify

    from pullback.jax import _bind
except ImportError:  # JAX is not installed
    jax_funcify = None

__all__ = ["RemoteOp", "compose", "remote"]


class RemoteFunction(Function):
    """An op of a service as a function of its inputs, by position in the contract's order.

    It returns a variable, or a tuple if the op has several outputs, in the dtype of its arguments. Inputs and outputs
    that are not differentiable are disconnected.

    It raises ``BadArgument`` for shapes that do not match, as far as they are known; a compiled function raises the
    error of the service if it refuses a call.
    """

    def __init__(self, p: Derivative) -> None:
        """Set the op."""
        super().__init__(p)
        self._op = RemoteOp(p)

    def __call__(self, *inputs: Any) -> Any:
        """Return the outputs."""
        if is_traced(inputs):
            return self.in_graph(inputs)
        p, given = self.given(inputs)
        op = self._op if p is self.p else RemoteOp(p)
        outputs = op.make_node(*given).outputs
        return outputs[0] if len(outputs) == 1 else tuple(outputs)


remote, compose = RemoteFunction.remote, RemoteFunction.compose


class RemoteOp(Op):
    """A derivative as an op.

    If ``batched``, the directions of the last derivation and the results have a leading axis, and with ``points`` all
    inputs and results. Only a rewrite makes such an op, after all derivatives are taken.
    """

    __props__ = ("p", "batched", "points")

    def __init__(self, p: Derivative, *, batched: bool = False, points: bool = False) -> None:
        """Set the derivative."""
        self.p = p
        self.batched, self.points = batched, points
        self._is_differentiated = False

    def __str__(self) -> str:
        return ".".join((self.p.remote.name, *self.p.path))

    def make_node(self, *inputs: Any) -> Apply:
        """Apply the op; raises ``BadArgument`` for shapes that do not match as far as they are known."""
        variables = [pt.as_tensor_variable(x) for x in inputs]
        given = [TensorType.symbolic(x.type.shape, x.type.dtype) for x in variables]
        refuse_complex(self.p.remote.contract(), "gradients of PyTensor")
        types = self.p.types(given, batched=self.batched, points=self.points)
        return Apply(self, variables, [pt.tensor(dtype=t.dtype.name, shape=t.static_shape) for t in types])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: list[list[Any]]) -> None:
        """Evaluate the derivative at arrays."""
        del node
        ahead = self._is_differentiated and not self.p.path
        given = [np.asarray(x) for x in inputs]
        results = evaluate(self.p, given, batched=self.batched, points=self.points, ahead=ahead)
        for storage, result in zip(output_storage, results, strict=True):
            storage[0] = result

    def infer_shape(self, fgraph: Any, node: Apply, input_shapes: Sequence[Any]) -> list[Any]:
        """Return the shapes of cotangents, and those of the outputs of elementwise ops; others need the values."""
        del fgraph
        if self.batched or self.points or (self.p.path[-1:] != ("vjp",) and self.p.remote.batching != "elementwise"):
            raise ShapeError(f"The shape of {self} is not inferred")
        if self.p.path[-1:] == ("vjp",):
            return [input_shapes[i] for i in self.p.parent.differentiable_inputs]
        return [input_shapes[0]] * len(node.outputs)

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        """Report which inputs derivatives connect with which outputs."""
        differentiable = self.p.differentiable_inputs
        is_seeded = [i in differentiable and x.type.dtype in float_dtypes for i, x in enumerate(node.inputs)]
        return [[i and o in self.p.differentiable_outputs for o in range(len(node.outputs))] for i in is_seeded]

    def pullback(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], cotangents: Sequence[Variable]
    ) -> list[Variable]:
        """Return cotangents of the inputs."""
        self._is_differentiated = True
        seeds = [_direction(cotangents[i], outputs[i]) for i in self.p.differentiable_outputs]
        found = iter(RemoteOp(self.p.vjp).make_node(*inputs, *seeds).outputs)
        return [next(found) if i in self.p.differentiable_inputs else DisconnectedType()() for i in range(len(inputs))]

    def pushforward(
        self, inputs: Sequence[Variable], outputs: Sequence[Variable], tangents: Sequence[Variable]
    ) -> list[Variable]:
        """Return tangents of the outputs."""
        self._is_differentiated = True
        seeds = [_direction(tangents[i], inputs[i]) for i in self.p.differentiable_inputs]
        found = iter(RemoteOp(self.p.jvp).make_node(*inputs, *seeds).outputs)
        return [
            next(found) if i in self.p.differentiable_outputs else DisconnectedType()() for i in range(len(outputs))
        ]

    L_op = pullback

    def R_op(self, inputs: list[Variable], eval_points: Any) -> list[Any]:
        """Return tangents of the outputs, ``None`` for those that are not differentiable."""
        tangents = [DisconnectedType()() if t is None else t for t in eval_points]
        found = self.pushforward(inputs, self.make_node(*inputs).outputs, tangents)
        return [None if isinstance(t.type, DisconnectedType) else t for t in found]


def _direction(direction: Any, of: Any) -> Any:
    """Return a direction in the dtype of a variable; zeros if there is none."""
    return pt.zeros_like(of) if isinstance(direction.type, DisconnectedType) else direction.astype(of.type.dtype)


@register_specialize
@node_rewriter([Blockwise])
def evaluate_a_batch_by_one_request(fgraph: Any, node: Apply) -> Any:
    """Replace a loop over a remote op by one call, if only directions have a batch or if the op allows it."""
    del fgraph
    op = node.op.core_op
    if not isinstance(op, RemoteOp):
        return None
    axes = node.op.batch_ndim(node)
    lead = [tuple(1 if x.type.broadcastable[i] else x.shape[i] for i in range(axes)) for x in node.inputs]
    sizes = pt.broadcast_shape(*lead, arrays_are_shapes=True)
    size = math.prod(sizes)
    is_shared = [all(x.type.broadcastable[:axes]) for x in node.inputs]
    arrays = [
        x[(0,) * axes] if shared else pt.broadcast_to(x, (*sizes, *x.shape[axes:])).reshape((size, *x.shape[axes:]))
        for x, shared in zip(node.inputs, is_shared, strict=True)
    ]

    def call(*arrays: Any, batched: bool, points: bool) -> list[Any]:
        return RemoteOp(op.p, batched=batched, points=points).make_node(*arrays).outputs

    dims = [None if shared else 0 for shared in is_shared]
    found = batch(op.p, arrays, dims, size, batched=False, points=False, call=call, xp=pt)
    if found is None:
        return None
    results = [x.reshape((*sizes, *x.shape[1:])) for x in found[0]]
    return [pt.specify_shape(x, old.type.shape) for x, old in zip(results, node.outputs, strict=True)]


@numba_funcify.register(RemoteOp)
def numba_funcify_remote(op: RemoteOp, node: Apply, **options: Any) -> Any:
    """Call ``perform`` from compiled code, without PyTensor's warning that this is slower: the request takes longer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return generate_fallback_impl(op, node, **options)


if jax_funcify is not None:

    @jax_funcify.register(RemoteOp)
    def jax_funcify_remote(op: RemoteOp, **options: Any) -> Callable[..., Any]:
        """Return the op as a function of JAX."""
        del options

        def function(*inputs: Any) -> Any:
            outputs = _bind(*inputs, p=op.p, batched=op.batched, points=op.points)
            return outputs[0] if len(outputs) == 1 else tuple(outputs)

        return function
