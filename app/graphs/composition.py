"""The function of a graph's op: the functions of its nodes, composed in TensorFlow.

TensorFlow differentiates the composition as if its author had written it, so the custom gradients of the nodes hold at
every order.
"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import tensorflow as tf

from app.autodiff.derived import DerivedOp
from app.autodiff.programs import program_of
from app.errors import PullbackError
from app.graphs.contract import Typed
from app.graphs.values import guarded, needs_guard
from app.graphs.wiring import Fixed, Value
from app.runtime import cancellation
from app.runtime.calculus import Graph, Tapes
from app.runtime.messages import message_of, node_scope, node_text
from app.runtime.source_lines import author_line
from ops import Attrs, Op, OpFault, Tensor


class Composition:
    """The composed function, ``composition(*inputs, **attrs)``, for an op with these inputs, attributes and outputs."""

    def __init__(
        self,
        inputs: Mapping[str, tuple[str, ...]],
        nodes: Sequence[Typed],
        outputs: Sequence[Value],
        attrs: type[Attrs],
        default_dtype: str,
        *,
        in_names: bool = False,
    ) -> None:
        """Take the inputs with their dtypes, the nodes, the outputs, and the dtype if no input has one.

        The kernels have the nodes ``in_names``, or names that TensorFlow chooses.
        """
        self._inputs, self._nodes, self._outputs = inputs, nodes, outputs
        self._attrs, self._default, self._in_names = attrs, default_dtype, in_names

    def __call__(self, *inputs: Tensor, **attrs: Any) -> Any:
        """Return the outputs of the graph, the only one bare."""
        values = self._values(inputs, attrs)
        found = [values[value] for value in self._outputs]
        return found[0] if len(found) == 1 else tuple(found)

    def with_names(self) -> "Composition":
        """Return the same function, whose kernels have the nodes in their names."""
        return Composition(self._inputs, self._nodes, self._outputs, self._attrs, self._default, in_names=True)

    def node_without_gradient(self, name: str, inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> str:
        """Return the node at which the gradient of the input ``name`` ends, as text; "" if none does.

        ``inputs`` and ``attrs`` are like those of a call; only their types count.
        """
        with tf.Graph().as_default():
            values = self._values(
                [_placeholder(x) for x in inputs],
                {key: _placeholder(value) if isinstance(value, tf.Tensor) else value for key, value in attrs.items()},
            )
            floats = {value: x for value, x in values.items() if x.dtype.is_floating}
            ys = [floats[value] for value in self._outputs if value in floats]
            has_gradient = {
                value: dx is not None for value, dx in zip(floats, tf.gradients(ys, [*floats.values()]), strict=True)
            }
        without = {Value("", name)}
        for node in (each.node for each in self._nodes):
            slots = [
                slot.name
                for slot in node.op.inputs
                if slot.differentiable
                and slot.name not in node.op.null_gradients
                and node.sources[slot.name] in without
            ]
            if not slots:
                continue
            outputs = [Value(node.name, slot.name) for slot in node.op.outputs if slot.differentiable]
            if any(has_gradient.get(value) for value in outputs):
                return f"{node_text(node.name, node.op.name)} for its input {slots[0]}"
            without.update(outputs)
        return ""

    def _values(self, inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> dict[Value, Tensor]:
        """Return the inputs and the outputs of all nodes."""
        typed = zip(inputs, self._inputs.values(), strict=True)
        dtype = next((x.dtype.name for x, dtypes in typed if len(dtypes) > 1), self._default)
        values = {Value("", name): x for name, x in zip(self._inputs, inputs, strict=True)}
        for each in self._nodes:
            node = each.node
            cancellation.check()
            try:
                with node_scope(node.name, node.op.name) if self._in_names else nullcontext():
                    outputs = _call(each, values, attrs, each.dtype or dtype)
            except OpFault as fault:
                raise fault.within(node_text(node.name, node.op.name)) from None
            except (tf.errors.OpError, PullbackError):
                raise
            except Exception as error:
                subject, kind, name = node_text(node.name, node.op.name), type(error).__name__, node.op.name
                what: dict[str, str] = {"expected": "no exception", "got": kind, "where": author_line(error)}
                raise OpFault(subject, name, message=f"failed: {message_of(error)}", **what) from error
            values |= {Value(node.name, name): y for name, y in outputs.items()}
        return values


def _placeholder(x: Tensor) -> Tensor:
    return tf.compat.v1.placeholder(x.dtype, x.shape)


def _call(each: Typed, values: Mapping[Value, Tensor], attrs: Mapping[str, Any], dtype: str) -> Mapping[str, Tensor]:
    """Return the outputs of a node."""
    op, node = each.node.op, each.node
    xs: dict[str, Tensor] = {}
    for slot in sorted(op.inputs, key=lambda slot: slot.name in each.filled):
        source = node.sources[slot.name]
        kind = op.dtype_of(slot, dtype)
        if isinstance(source, Fixed):
            x = tf.constant(source.array(kind), kind)
            xs[slot.name] = tf.fill(tf.shape(xs[each.filled[slot.name]]), x) if slot.name in each.filled else x
        else:
            xs[slot.name] = values[source]
    given = {**node.fixed, **{name: attrs[attr] for name, attr in node.bound.items()}}
    numbers, static = dict[str, Tensor](), {name: given[name] for name in op.attrs.static_names()}
    for name in op.attrs.number_names():
        number = given[name]
        numbers[name] = tf.cast(number, dtype) if isinstance(number, tf.Tensor) else tf.constant(number, dtype)
    leaves = [xs[slot.name] for slot in op.inputs]
    if needs_guard(each):
        leaves = guarded(each, leaves, static, numbers)
    leaves += numbers.values()
    return call_op(op, dtype, tuple(static.items()), leaves)


def call_op(op: Op, dtype: str, static: tuple[tuple[str, Any], ...], leaves: Sequence[Tensor]) -> Mapping[str, Tensor]:
    """Return the outputs of an op, registered or derived; ``leaves`` are its inputs and its number attributes.

    A derived op has derivatives in copies of its inputs, whatever these depend on.
    """
    program = program_of((op, dtype, static, (), (), False, 0))
    if not isinstance(op, DerivedOp):
        return {name: y for (_, name), y in program.build(Graph(), leaves).items() if y is not None}
    same = [tf.identity(leaf) for leaf in leaves]
    if tf.executing_eagerly():
        with Tapes(program.traits.orders) as tapes:
            results = program.build(tapes, same)
    else:
        results = program.build(Graph(), same)
    named, found = dict(zip(program.leaf_names, leaves, strict=True)), dict[str, Tensor]()
    for (level, name), y in results.items():
        if isinstance(level, str):
            continue
        of = program.expected[level, name].shape
        if y is None and not of.is_leaf:
            raise OpFault(program.op.name, name, expected="a derivative", got="none: no path leads to it")
        # Where no path leads to it, the derivative is zero.
        found[name] = tf.zeros_like(named[of.name]) if y is None else y
    return found
