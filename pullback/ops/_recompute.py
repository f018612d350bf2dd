"""Recomputation: a function that keeps only its inputs for its gradient, and computes the rest again when needed."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from pullback.ops._faults import OpFault, located
from pullback.ops._inferred_mechanism import marked
from pullback.ops._mechanisms import custom_gradient
from pullback.ops._rules import Function, Tensor, has_gradient, many


def recompute(function: Function) -> Function:
    """Return a function with the values and derivatives of ``function``, at every order, that uses less memory.

    ``function(*inputs, **attrs)`` returns a tensor, or several. Between the forward and the backward pass of a graph,
    only the inputs are kept; the backward pass computes the rest again. XLA may keep it all the same. Mode eager, which
    is the reference, keeps everything.

    Raises ``OpFault`` if ``function`` depends on other numbers that a request sends than those of its arguments: their
    derivatives would be lost.
    """

    @functools.wraps(function)
    def op(*inputs: Tensor | None, **attrs: Any) -> Any:
        if tf.executing_eagerly():
            return function(*inputs, **attrs)

        @functools.wraps(function)
        def forward(*xs: Tensor | None, **attrs: Any) -> Any:
            ys = function(*xs, **attrs)
            _need_arguments(function, many(ys), [x for x in (*xs, *attrs.values()) if isinstance(x, tf.Tensor)])
            return ys

        def vjp(*leaves: Tensor | None, **attrs: Any) -> list[Tensor | None]:
            present: list[int] = []

            def pull(*leaves: Tensor | None, **attrs: Any) -> list[Tensor]:
                dxs = _pulled(function, leaves[: len(inputs)], leaves[len(inputs) :], attrs)
                present[:] = [i for i, dx in enumerate(dxs) if dx is not None]
                return [dx for dx in dxs if dx is not None]

            dxs = dict(zip(present, many(recompute(pull)(*leaves, **attrs)), strict=True))
            return [dxs.get(i) for i in range(len(inputs))]

        return custom_gradient(forward, vjp)(*inputs, **attrs)

    return marked(op, "custom_gradient")


def _pulled(
    function: Function, slots: Sequence[Tensor | None], dys: Sequence[Tensor | None], attrs: Mapping[str, Any]
) -> list[Tensor | None]:
    """Return the gradient of a function at inputs, computed from them when the cotangents are there."""
    with tf.control_dependencies([dy for dy in dys if dy is not None]):
        xs = [None if x is None else tf.identity(x) for x in slots]
    ys = [y for y in many(function(*xs, **attrs)) if has_gradient(y)]
    sources = [x for x in xs if x is not None and has_gradient(x)]
    dxs = map(_dense, tf.gradients(ys, sources, list(dys)))
    return [next(dxs) if x is not None and has_gradient(x) else None for x in xs]


def _dense(dx: Any) -> Tensor | None:
    return tf.convert_to_tensor(dx) if isinstance(dx, tf.IndexedSlices) else dx


def _need_arguments(function: Function, ys: Sequence[Tensor], arguments: Sequence[Tensor]) -> None:
    """Raise ``OpFault`` if values depend on a placeholder of floats, except through the arguments."""
    for tensor in _sources(ys, arguments):
        if tensor.op.type == "Placeholder" and has_gradient(tensor):
            expected, got = "all tensors that have a derivative as arguments", f"{tensor.name} from outside"
            raise OpFault("recompute", function.__name__, expected=expected, got=got, where=located(function))


def _sources(ys: Sequence[Tensor], arguments: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield the tensors without inputs, in this graph and those around it, on which values depend."""
    rest, seen = [*ys], {id(x) for x in arguments}
    while rest:
        tensor = rest.pop()
        if id(tensor) in seen or not tf.is_symbolic_tensor(tensor):
            continue
        seen.add(id(tensor))
        captured = {id(inner): outer for outer, inner in getattr(tensor.graph, "captures", ())}
        if id(tensor) in captured:
            rest.append(captured[id(tensor)])
        elif tensor.op.inputs:
            rest += tensor.op.inputs
        else:
            yield tensor
