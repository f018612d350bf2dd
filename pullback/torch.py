"""Ops of a service as functions of PyTorch: ``backward``, double backward, ``torch.func`` and ``torch.compile`` work.

::

    import pullback.torch

    log1pexp = pullback.torch.remote("log1pexp", url="http://127.0.0.1:8000")
    log1pexp(x).sum().backward()

A function of autograd stands for an op after any path of derivations: its derivatives are the same function after a
longer path. A compiler needs an operator of ``torch.library`` in its place; that has no forward mode.
"""

import json
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

from pullback.gradcheck.torch_gradcheck import gradcheck, gradgradcheck
from pullback.graph_values import is_traced
from pullback.remotes import Derivative, Function, Remote, TensorType, batch, evaluate
from pullback.remotes.credentials import handle

__all__ = ["compose", "gradcheck", "gradgradcheck", "remote"]

Tensors = Sequence[torch.Tensor]


class RemoteFunction(Function, torch.nn.Module):
    """An op of a service as a function of its inputs, by position in the contract's order, and as a module of layers.

    It returns a tensor, or a tuple if the op has several outputs, in the dtype and on the device of its arguments,
    which are copied to the CPU for the request. In a compiled function, it takes all inputs of the op. Inputs that are
    not differentiable have no gradient. It raises the errors of the client: ``pullback.PullbackError``.
    """

    def __init__(self, p: Derivative) -> None:
        """Set the op."""
        torch.nn.Module.__init__(self)
        Function.__init__(self, p)
        self._text = _text(p)

    def forward(self, *inputs: Any) -> Any:
        """Return the outputs."""
        if is_traced(inputs):
            return self.in_graph(inputs)
        # The contract, which names the inputs that are left out, cannot be read while a function is compiled.
        p, given = (self.p, inputs) if torch.compiler.is_compiling() else self.given(inputs)
        tensors = [x if isinstance(x, torch.Tensor) else torch.as_tensor(x) for x in given]
        ahead = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
        if torch.compiler.is_compiling():
            outputs = tuple(_operator(self._text, False, False, ahead, tensors))
        else:
            outputs = _Remote.apply(p, False, False, ahead, *tensors)
        return outputs[0] if len(outputs) == 1 else outputs


remote, compose = RemoteFunction.remote, RemoteFunction.compose


OPTIONS = 4
"""How many arguments of the function and of the operator come before the tensors."""


class _Remote(torch.autograd.Function):
    """An op after a path of derivations; ``batched``, ``points`` and ``ahead`` are those of ``evaluate``."""

    @staticmethod
    def forward(
        p: Derivative, batched: bool, points: bool, ahead: bool, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        found = evaluate(p, [_to_numpy(x) for x in tensors], batched=batched, points=points, ahead=ahead)
        return tuple(_to_torch(x).to(tensors[0].device) for x in found)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        ctx.p, ctx.batched, ctx.points, _, *tensors = inputs
        ctx.count = len(output)
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        ctx.mark_non_differentiable(*(y for i, y in enumerate(output) if i not in ctx.p.differentiable_outputs))

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        p, tensors = ctx.p, ctx.saved_tensors
        seeds = [cotangents[i] for i in p.differentiable_outputs]
        found = _derivative(p.vjp, p, ctx.batched, ctx.points, [*tensors, *seeds])
        gradients = [None] * (OPTIONS + p.arity)
        for i, x in zip(p.differentiable_inputs, found, strict=True):
            # The inputs that a batch shares get the sum of its gradients.
            gradients[OPTIONS + i] = x.sum(int(ctx.points)) if ctx.batched and i < p.parent.arity else x
        return tuple(gradients)

    @staticmethod
    def jvp(ctx: Any, *tangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        p, tensors = ctx.p, ctx.saved_tensors
        given = tangents[OPTIONS:]
        seeds = [torch.zeros_like(tensors[i]) if given[i] is None else given[i] for i in p.differentiable_inputs]
        pushed = _derivative(p.jvp, p, ctx.batched, ctx.points, [*tensors, *seeds])
        found = dict(zip(p.differentiable_outputs, pushed, strict=True))
        return tuple(found.get(i) for i in range(ctx.count))

    @staticmethod
    def vmap(  # noqa: PLR0917 - those of forward follow the first two
        info: Any, in_dims: tuple[Any, ...], p: Derivative, batched: bool, points: bool, ahead: bool, *tensors: Any
    ) -> Any:
        call, dims = partial(_apply, p, ahead=ahead), in_dims[OPTIONS:]
        found, axis = _vmap(p, tensors, dims, info.batch_size, batched=batched, points=points, call=call)
        return tuple(found), axis


# torch.moveaxis has no rule for vmap; torch.movedim is the same.
_ARRAYS = SimpleNamespace(moveaxis=torch.movedim, broadcast_to=torch.broadcast_to)


def _vmap(
    p: Derivative,
    tensors: Tensors,
    dims: Sequence[int | None],
    size: int,
    *,
    batched: bool,
    points: bool,
    call: Callable[..., Tensors],
) -> tuple[Tensors, int]:
    found = batch(p, tensors, dims, size, batched=batched, points=points, call=call, xp=_ARRAYS)
    if found is not None:
        return found
    parts = [
        [x if dim is None else x.select(dim, i) for x, dim in zip(tensors, dims, strict=True)] for i in range(size)
    ]
    outputs = [call(*part, batched=batched, points=points) for part in parts]
    return [torch.stack(list(y)) for y in zip(*outputs, strict=True)], 0


def _apply(
    p: Derivative, *tensors: torch.Tensor, batched: bool = False, points: bool = False, ahead: bool = False
) -> Tensors:
    return _Remote.apply(p, batched, points, ahead, *tensors)


def _derivative(derivative: Derivative, of: Derivative, batched: bool, points: bool, tensors: Tensors) -> Tensors:
    """Return the results of ``of.vjp`` or ``of.jvp``, for each part of the batch if ``of`` was evaluated for one."""
    call, many = partial(_apply, derivative, points=points), int(points)
    if not batched:
        return call(*tensors)
    shared = set(range(of.parent.arity))
    if derivative.path[-1] == "jvp":
        shared |= {of.arity + k for k, i in enumerate(of.differentiable_inputs) if i in shared}
    in_dims = tuple(None if i in shared else many for i in range(len(tensors)))
    return torch.vmap(call, in_dims, many)(*tensors)


@torch.library.custom_op(
    "pullback::evaluate",
    mutates_args=(),
    schema="(str p, bool batched, bool points, bool ahead, Tensor[] tensors) -> Tensor[]",
)
def _operator(p: str, batched: bool, points: bool, ahead: bool, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Evaluate a derivative, given as text, in a graph that a compiler made."""
    return list(_Remote.forward(_derivative_of(p), batched, points, ahead, *tensors))


@_operator.register_fake
def _fake(p: str, batched: bool, points: bool, ahead: bool, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    del ahead
    if forward_ad._current_level >= 0:  # the operator would drop the tangents, and PyTorch would take them for zero
        raise NotImplementedError("torch.compile has no forward mode for operators: call torch.func.jvp outside of it")
    inputs = [TensorType(tuple(x.shape), np.dtype(str(x.dtype).removeprefix("torch."))) for x in tensors]
    types = _derivative_of(p).types(inputs, batched=batched, points=points)
    return [tensors[0].new_empty(t.shape, dtype=getattr(torch, t.dtype.name)) for t in types]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: list[torch.Tensor]) -> None:
    text, _, ctx.points, _, tensors = inputs
    ctx.p, ctx.types = _derivative_of(text), [(y.shape, y.dtype) for y in output]
    ctx.save_for_backward(*tensors)


def _backward(ctx: Any, cotangents: Sequence[torch.Tensor | None]) -> tuple[Any, ...]:
    p, tensors = ctx.p, ctx.saved_tensors
    given = ((cotangents[i], *ctx.types[i]) for i in p.differentiable_outputs)
    seeds = [tensors[0].new_zeros(shape, dtype=dtype) if x is None else x for x, shape, dtype in given]
    pulled = _operator(_text(p.vjp), False, ctx.points, False, [*tensors, *seeds])
    found = dict(zip(p.differentiable_inputs, pulled, strict=True))
    return None, None, None, None, [found.get(i) for i in range(p.arity)]


_operator.register_autograd(_backward, setup_context=_keep)


@_operator.register_vmap
def _vmap_of_operator(  # noqa: PLR0917 - the operator's own arguments follow the first two
    info: Any, in_dims: tuple[Any, ...], p: str, batched: bool, points: bool, ahead: bool, tensors: Tensors
) -> tuple[Tensors, list[int]]:
    def call(*arrays: torch.Tensor, batched: bool, points: bool) -> Tensors:
        return _operator(p, batched, points, ahead, list(arrays))

    dims, size = in_dims[OPTIONS], info.batch_size
    found, axis = _vmap(_derivative_of(p), tensors, dims, size, batched=batched, points=points, call=call)
    return found, [axis] * len(found)


_known: dict[str, Derivative] = {}
"""The derivatives in graphs, which refer to them by text."""


def _text(p: Derivative) -> str:
    """Return a text for graphs, files and caches, which stands for this derivative alone, and has no secret."""
    saved = {**p.remote.saved, "path": p.path}
    text = json.dumps(saved)
    if _known.get(text, p) != p:
        # Both have the credentials of the environment, which has changed between them.
        text = json.dumps({**saved, "handle": handle(p.remote.credentials)})
    _known[text] = p
    return text


def _derivative_of(text: str) -> Derivative:
    """Return a derivative from its text, in another process with the key of ``PULLBACK_KEY`` there."""
    if text not in _known:
        arguments = json.loads(text)
        path = tuple(arguments.pop("path"))
        _known[text] = Derivative(Remote(**arguments), path)
    return _known[text]


def _to_numpy(tensor: torch.Tensor) -> np.ndarray:
    tensor = tensor.detach().resolve_conj().cpu()
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes  # noqa: PLC0415 - NumPy has no bfloat16

        return tensor.contiguous().view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def _to_torch(array: np.ndarray) -> torch.Tensor:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)
