"""The values that nodes refuse: checked before the graph runs, where they are inputs of the graph or constants."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import tensorflow as tf

from app.graphs.contract import Contract, Typed
from app.graphs.wiring import Fixed, Value
from app.runtime.messages import node_text
from app.tensors.dtypes import DTYPES
from ops import Array, InvalidInput, Tensor

Validate = Callable[[Mapping[str, Array], Any], None]


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
