"""The function of a graph's op: the functions of its nodes, composed in TensorFlow.

TensorFlow differentiates the composition as if its author had written it, so the custom gradients of the nodes hold at
every order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Any

import numpy as np
import tensorflow as tf

from app.autodiff.derived import DerivedOp
from app.autodiff.programs import program_of
from app.errors import PullbackError
from app.graphs.contract import Contract, Typed
from app.graphs.wiring import Fixed, Value
from app.runtime import cancellation
from app.runtime.calculus import Graph, Tapes
from app.runtime.messages import message_of, node_scope, node_text
from app.runtime.source_lines import author_line
from app.tensors.dtypes import DTYPES
from ops import Array, Attrs, InvalidInput, Op, OpFault, Tensor

Validate = Callable[[Mapping[str, Array], Any], None]


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


class _NotKnown(Exception):
    """The value of an input that another node computes was asked for; its name is the argument."""


class _Known(Mapping[str, Array]):
    """The inputs of a node that are known before the graph runs."""

    def __init__(self, known: Mapping[str, Array]) -> None:
        self._known = known

    def __getitem__(self, name: str) -> Array:
        if name not in self._known:
            raise _NotKnown(name)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def validation(contract: Contract) -> Validate | None:
    """Return the function that refuses values of the graph's inputs, ``None`` if all nodes accept all."""
    checked = [each for each in contract.nodes if each.node.op.validate is not None and not needs_guard(each)]
    if not checked:
        return None

    def validate(inputs: Mapping[str, Array], values: Any) -> None:
        for each in checked:
            assert each.node.op.validate is not None
            try:
                each.node.op.validate(_known(each, inputs), each.node.attrs(values))
            except InvalidInput as error:
                raise _named(error, each) from None

    return validate


def needs_guard(each: Typed) -> bool:
    """Return whether the op of a node refuses values that another node computes: they are checked when it has."""
    op, node = each.node.op, each.node
    computed = {slot for slot, value in node.values() if value.node}
    if op.validate is None or not computed:
        return False
    if not set(node.bound).isdisjoint(op.attrs.static_names()):
        return True
    for example in op.examples:
        known = {
            slot.name: np.asarray(example.inputs[slot.name], DTYPES[op.dtype_of(slot, op.dtypes[0])].numpy)
            for slot in op.inputs
            if slot.name not in computed
        }
        with suppress(InvalidInput):
            try:
                op.validate(_Known(known), op.attrs.model_validate({**example.attrs, **node.fixed}))
            except _NotKnown:
                return True
    return False


def guarded(
    each: Typed, xs: Sequence[Tensor], static: Mapping[str, Any], numbers: Mapping[str, Tensor]
) -> list[Tensor]:
    """Return the inputs of a node, which its op has checked before anything uses them.

    TensorFlow raises ``InvalidArgumentError`` for values that it refuses.
    """
    op, names = each.node.op, [slot.name for slot in each.node.op.inputs]

    def check(*values: Array) -> Array:
        assert op.validate is not None
        inputs = dict(zip(names, values, strict=False))
        given: dict[str, Any] = {**static, **dict(zip(numbers, map(float, values[len(names) :]), strict=True))}
        attrs = op.attrs.model_construct(**given)
        try:
            op.validate(inputs, attrs)
        except InvalidInput as error:
            raise ValueError(f"{error.message}: expected {error.expected}, got {error.got}") from None
        return np.array(True)

    if tf.executing_eagerly():
        try:
            check(*(x.numpy() for x in (*xs, *numbers.values())))
        except ValueError as error:
            raise tf.errors.InvalidArgumentError(None, None, str(error)) from None
        return list(xs)
    done = tf.numpy_function(check, [*xs, *numbers.values()], tf.bool)
    with tf.control_dependencies([done]):
        return [tf.identity(x) for x in xs]


def _known(each: Typed, inputs: Mapping[str, Array]) -> _Known:
    known: dict[str, Array] = {}
    for slot in each.node.op.inputs:
        source = each.node.sources[slot.name]
        if isinstance(source, Fixed):
            known[slot.name] = source.array(each.node.op.dtype_of(slot, each.dtype or each.node.op.dtypes[0]))
        elif not source.node:
            known[slot.name] = inputs[source.name]
    return _Known(known)


def _named(error: InvalidInput, each: Typed) -> InvalidInput:
    """Return the error of a node with the name that the graph has for the input or attribute."""
    node = each.node
    source = node.sources.get(error.name)
    name = source.name if isinstance(source, Value) else node.bound.get(error.name, error.name)
    message = f"{node_text(node.name, node.op.name)}: {error.message}"
    return InvalidInput(name, message, expected=error.expected, got=error.got, index=error.index)
