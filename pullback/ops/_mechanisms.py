"""TensorFlow's mechanisms for giving an op its gradient, each built to work in every mode.

Every helper returns a function ``op(*inputs, **attrs)`` that works eagerly, inside a ``tf.function`` whether the tape
is inside or outside it, under XLA and in a v1 graph, at every order. The results of a gradient function are checked at
each call (``OpFault``), because TensorFlow accepts many wrong ones.
"""

import functools
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from pullback.ops._faults import OpFault
from pullback.ops._inferred_mechanism import marked, used_by
from pullback.ops._rules import (
    RULES,
    Function,
    Rules,
    Tensor,
    call_rule,
    checked_gradients,
    dense,
    filled,
    has_gradient,
    many,
    sent,
)

# What a gradient function takes, for messages.
COTANGENTS = ": the inputs, then the cotangent of each float output, differentiable or not"

_serial_numbers = itertools.count()


def custom_gradient(forward: Function, vjp: Function, vjp_vjp: Function | None = None) -> Function:
    """Give ``forward`` the gradient ``vjp``, and ``vjp`` the gradient ``vjp_vjp``, by nested ``tf.custom_gradient``.

    Without ``vjp_vjp`` the second order is TensorFlow's own derivative of ``vjp``; with it, the third order is the
    derivative of ``vjp_vjp``. ``vjp`` gets the cotangents of float and complex outputs, ``vjp_vjp`` those of the
    gradients that are not ``None``. Any input may be ``None``, if it is optional: then all functions get ``None`` for
    it, ``vjp_vjp`` for its ddx too if it takes so many arguments, and what they return for it is not used.

    The pullback receives all it needs as arguments, through ``tf.identity``: a residual captured in a closure would be
    out of scope when the tape is outside the ``tf.function``.
    """
    rules = Rules(vjp, vjp_vjp or vjp)

    @functools.wraps(forward)
    def op(*slots: Tensor | None, **attrs: Any) -> Any:
        inputs = [x for x in slots if x is not None]
        static, numbers = _split(attrs, inputs)
        n_primals, n_leaves = len(inputs), len(inputs) + len(numbers)

        def call(rule: Function, leaves: Sequence[Tensor], kinds: str = "", *ddxs: Sequence[Tensor | None]) -> Any:
            """Call a rule of the page on ``(*inputs, *numbers, *cotangents)`` and the first ``ddxs`` that it takes."""
            values = dict(zip(numbers, leaves[n_primals:n_leaves], strict=True))
            args = (*filled(slots, leaves[:n_primals]), *leaves[n_leaves:])
            return call_rule(rule, args, {**static, **values}, kinds, *ddxs)

        def pullback(*leaves: Tensor) -> list[Tensor | None]:
            dxs = checked_gradients(vjp, call(vjp, leaves, COTANGENTS), filled(slots, leaves[:n_primals]))
            rules.returned_none.update(i for i, dx in enumerate(dxs) if dx is None and slots[i] is not None)
            return sent(slots, dxs)

        def pullback_with_its_own_gradient(*leaves: Tensor) -> list[Tensor | None]:
            present: list[int] = []

            @tf.custom_gradient
            def gradient(*leaves: Tensor) -> Any:
                dxs = pullback(*leaves)
                present[:] = [i for i, dx in enumerate(dxs) if dx is not None]

                def pull_back_again(*ddxs: Tensor) -> Any:
                    same, dys = [tf.identity(leaf) for leaf in leaves], leaves[n_leaves:]
                    given = dict(zip(present, ddxs, strict=True))
                    order = filled(slots, range(n_primals))
                    with_none = [None if i is None else given[i] for i in order if i is None or i in given]
                    kinds = f"{COTANGENTS}, then of each gradient"
                    result = call(rules.vjp_vjp, same, kinds, with_none, ddxs)
                    wanted = (*filled(slots, leaves[:n_primals]), *dys)
                    gradients = checked_gradients(rules.vjp_vjp, result, wanted)
                    of_xs, of_dys = sent(slots, gradients[: len(slots)]), gradients[len(slots) :]
                    return [*of_xs, *(None for _ in numbers), *of_dys]

                return [dxs[i] for i in present], pull_back_again

            dxs = dict(zip(present, many(gradient(*leaves)), strict=True)) if leaves else {}
            return [dxs.get(i) for i in range(n_primals)]

        @tf.custom_gradient
        def primal(*leaves: Tensor) -> Any:
            outputs = call(forward, leaves)

            def pull_back(*dys: Tensor | None) -> Any:
                dense_dys = map(dense, dys, many(outputs))
                float_dys = [tf.identity(dy) for dy in dense_dys if dy is not None and has_gradient(dy)]
                gradient = pullback if vjp_vjp is None else pullback_with_its_own_gradient
                return [*gradient(*(tf.identity(leaf) for leaf in leaves), *float_dys), *(None for _ in numbers)]

            return outputs, pull_back

        return primal(*inputs, *numbers.values())

    vars(op)[RULES] = rules
    return marked(op, "symbolic_gradient" if "symbolic_gradient" in used_by(vjp) else "custom_gradient")


def override(gradients: Mapping[str, Function], forward: Function, *, numbers: tuple[str, ...] = ()) -> Function:
    """Run ``forward`` with other gradients for the TensorFlow op types in it: ``gradient_override_map``.

    ``gradients`` maps an op type, such as ``"Sign"``, to ``gradient(op, *dys, **numbers)``; ``numbers`` names the
    number attributes, in the order in which the op declares them. The map is honoured only where the gradient of a
    *graph* is taken, so ``forward`` is wrapped in a separate ``tf.function``, with one trace for each dtype and
    static attribute; a tape in an eager caller then differentiates that function.

    Raises ``ValueError`` at the first call when ``forward`` has no op of an overridden type, because TensorFlow
    silently ignores such an entry.
    """
    names = {op_type: f"Pullback{op_type}{next(_serial_numbers)}" for op_type in gradients}
    for op_type, gradient in gradients.items():
        tf.RegisterGradient(names[op_type])(_checked(gradient, numbers))

    @functools.cache
    def trace(slots: tuple[bool | None, ...], dtypes: tuple[tf.DType, ...], static: tuple[tuple[str, Any], ...]) -> Any:
        def overridden(*leaves: Tensor) -> Any:
            graph = tf.compat.v1.get_default_graph()
            values = dict(zip(numbers, leaves[len(leaves) - len(numbers) :], strict=True))
            with graph.gradient_override_map(names):
                xs = filled(slots, leaves[: len(leaves) - len(numbers)])
                outputs = forward(*xs, **dict(static), **values)
            if missing := set(names) - {operation.type for operation in graph.get_operations()}:
                raise ValueError(f"gradient_override_map: {forward.__name__} has no op of type {sorted(missing)}")
            return outputs

        n_inputs = len(dtypes) - len(numbers)
        specs = [tf.TensorSpec(None if i < n_inputs else [], dtype) for i, dtype in enumerate(dtypes)]
        return tf.function(overridden, input_signature=specs, autograph=False).get_concrete_function()

    @functools.wraps(forward)
    def op(*slots: Tensor | None, **attrs: Any) -> Any:
        inputs, present = [x for x in slots if x is not None], tuple(None if x is None else True for x in slots)
        static, values = _split(attrs, inputs)
        leaves = (*inputs, *(values[name] for name in numbers))
        with tf.init_scope():
            function = trace(present, tuple(leaf.dtype for leaf in leaves), tuple(sorted(static.items())))
        return function(*leaves)

    return marked(op, "gradient_override_map")


def register_gradient(op_type: str) -> Callable[[Function], Function]:
    """Register ``gradient(op, *dys)`` for an op type, as ``tf.RegisterGradient``, and check its arguments and results.

    A TensorFlow op with N outputs calls its gradient with N + 1 arguments and wants one value for each of its inputs:
    a tensor of the input's shape and dtype, or ``None``.

    Raises ``KeyError`` when the op type has a gradient already, and ``OpFault`` for wrong arguments or results.
    """

    def register(gradient: Function) -> Function:
        tf.RegisterGradient(op_type)(_checked(gradient, ()))
        return marked(gradient, "register_gradient")

    return register


INLINED = "pullback: with a SymbolicGradient"
"""A graph with this collection must be inlined: TensorFlow's SymbolicGradient fails where no optimiser has seen it."""


def symbolic_gradient(forward: Function, *leaves: Tensor) -> Any:
    """Return the gradient that C++ registers, by ``REGISTER_OP_GRADIENT``, for the ops of ``forward``: dx for each x.

    ``leaves`` are ``(*x, *dy)``, with a dy for each output. No Python registry has such a gradient, so a tape and
    ``tf.gradients`` do not find it. TensorFlow's op SymbolicGradient does, for a function within a graph; so both are
    traced, once for each choice of dtypes. That op has no gradient: call this in a ``vjp`` that has a
    ``vjp_vjp`` beside it.

    Raises ``OpFault`` if the result is differentiated.
    """

    @tf.custom_gradient
    def pull(*leaves: Tensor) -> Any:
        with tf.init_scope():
            gradient = _symbolic(forward, tuple(leaf.dtype for leaf in leaves))
        graph: Any = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        while graph is not None:
            graph.add_to_collection(INLINED, forward.__name__)
            graph = getattr(graph, "outer_graph", None)

        def pull_back_again(*ddxs: Tensor) -> Any:
            del ddxs
            expected, message = "a vjp_vjp beside its vjp", "has a C++ gradient without a second order"
            raise OpFault(forward.__name__, "its gradient in C++", expected=expected, got="none", message=message)

        return gradient(*(tf.stop_gradient(leaf) for leaf in leaves)), pull_back_again

    return pull(*leaves)


@functools.cache
def _symbolic(forward: Function, dtypes: tuple[tf.DType, ...]) -> Any:
    inputs = dtypes[: len(inspect.signature(forward).parameters)]
    specs = [tf.TensorSpec(None, dtype) for dtype in dtypes]
    primal = tf.function(forward, input_signature=specs[: len(inputs)], autograph=False).get_concrete_function()

    def gradient(*leaves: Tensor) -> Any:
        primal.add_to_graph()
        named = tf.compat.v1.NameAttrList(name=primal.name)
        # Ops written in C++ for the CPU have no other kernels, and a function runs where it is called.
        with tf.device("/device:CPU:0"):
            dxs = tf.raw_ops.SymbolicGradient(input=leaves, Tout=list(inputs), f=named)
        return dxs[0] if len(inputs) == 1 else dxs

    return tf.function(gradient, input_signature=specs, autograph=False).get_concrete_function()


def additive(forward: Function, backward: Function) -> Function:
    """Return ``t + stop_gradient(f - t)`` with t = backward(x): the value of f, the exact derivative of t.

    In floating point f - t loses f where t is large: the value is off by up to half a unit in the last place of t.
    """

    def op(*inputs: Tensor, **attrs: Any) -> Tensor:
        t = backward(*inputs, **attrs)
        return t + tf.stop_gradient(forward(*inputs, **attrs) - t)

    return marked(op, "stop_gradient")


def multiplicative(forward: Function, backward: Function) -> Function:
    """Return ``stop_gradient(f / t) * t`` with t = backward(x): the value of f, the derivative (f / t) t'.

    Value and derivative are NaN where t = 0.
    """

    def op(*inputs: Tensor, **attrs: Any) -> Tensor:
        t = backward(*inputs, **attrs)
        return tf.stop_gradient(forward(*inputs, **attrs) / t) * t

    return marked(op, "stop_gradient")


# A function whose code calls these has their mechanism.
marked(additive, "stop_gradient")
marked(multiplicative, "stop_gradient")
marked(symbolic_gradient, "symbolic_gradient")


def _split(attrs: Mapping[str, Any], inputs: Sequence[Tensor]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Split attributes into static ones and numbers; a Python float becomes a scalar of the inputs' float dtype."""
    dtype = next((x.dtype.real_dtype for x in inputs if has_gradient(x)), tf.float32)
    numbers = {k: tf.convert_to_tensor(v, dtype) for k, v in attrs.items() if isinstance(v, (float, tf.Tensor))}
    return {k: v for k, v in attrs.items() if k not in numbers}, numbers


def _checked(gradient: Function, numbers: tuple[str, ...]) -> Function:
    """Return a gradient to register that checks its arguments and results.

    The number attributes are the last inputs of the graph that contains its op, which is a trace of ``override``.
    """

    @functools.wraps(gradient)
    def checked(op: tf.Operation, *dys: Tensor | None) -> list[Tensor | None]:
        values = dict(zip(numbers, op.graph.inputs[-len(numbers) :], strict=True)) if numbers else {}
        slots = [f"input {i} of {op.type}" for i in range(len(op.inputs))]
        given = map(dense, dys, op.outputs or dys)
        return checked_gradients(gradient, call_rule(gradient, (op, *given), values), list(op.inputs), slots)

    return checked
