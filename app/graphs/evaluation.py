"""The nodes of a graph, one after the other, on NumPy arrays in float64: for claims and references."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from app.graphs.composition import call_op
from app.graphs.contract import Typed
from app.graphs.wiring import Value
from ops import Array, Attrs, Tensor, many

Values: TypeAlias = dict[Value, Array]
Apply: TypeAlias = Callable[[Typed, list[Array]], Sequence[Array]]
"""Returns the outputs of a node for its inputs."""


def arguments(each: Typed, values: Mapping[Value, Array]) -> list[Array]:
    """Return the inputs of a node; constants are as they are in float64."""
    op, found = each.node.op, dict[str, Array]()
    for slot in sorted(op.inputs, key=lambda slot: slot.name in each.filled):
        source = each.node.sources[slot.name]
        if isinstance(source, Value):
            found[slot.name] = values[source]
        else:
            x = source.array(op.dtype_of(slot, _dtype(each)))
            found[slot.name] = np.full(found[each.filled[slot.name]].shape, x) if slot.name in each.filled else x
    return [found[slot.name] for slot in op.inputs]


def values_of(inputs: Sequence[str], nodes: Sequence[Typed], primals: Sequence[Array], apply: Apply) -> Values:
    """Return all values of a graph for these inputs, where ``apply`` returns the outputs of a node."""
    found = {Value("", name): x for name, x in zip(inputs, primals, strict=True)}
    for each in nodes:
        ys = apply(each, arguments(each, found))
        found |= {value: np.asarray(y) for value, y in zip(outputs_of(each), ys, strict=True)}
    return found


def outputs_of(each: Typed) -> list[Value]:
    """Return the values that are the outputs of a node."""
    return [Value(each.node.name, slot.name) for slot in each.node.op.outputs]


def sources_of(each: Typed) -> list[Value | None]:
    """Return the values that are the inputs of a node, ``None`` for constants."""
    sources = [each.node.sources[slot.name] for slot in each.node.op.inputs]
    return [source if isinstance(source, Value) else None for source in sources]


def add_to(sums: Values, values: Sequence[Value | None], arrays: Sequence[Array | None]) -> None:
    """Add arrays to the sums of these values; nothing where either is ``None``."""
    for value, array in zip(values, arrays, strict=True):
        if value is not None and array is not None:
            sums[value] = sums[value] + array


def zeros_like(values: Values) -> Values:
    """Return zeros for each value."""
    return {value: np.zeros(np.shape(y)) for value, y in values.items()}


def referenced(each: Typed, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
    """Return the reference of a node's op."""
    op, node = each.node.op, each.node
    assert op.reference is not None
    return many(op.reference(*xs, **node.fixed, **{name: attrs[attr] for name, attr in node.bound.items()}))


def computed(each: Typed, xs: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    """Return the outputs of a node: its reference, or what its op computes if it has none."""
    if each.node.op.reference is not None:
        return referenced(each, xs, attrs.model_dump())
    return [y.numpy() for y in called(each, tensors_of(each, xs), attrs)]


def tensors_of(each: Typed, xs: Sequence[Array]) -> list[Tensor]:
    """Return the inputs of a node as tensors of its op's dtypes."""
    kinds = [each.node.op.dtype_of(slot, _dtype(each)) for slot in each.node.op.inputs]
    return [tf.convert_to_tensor(np.asarray(x, kind)) for x, kind in zip(xs, kinds, strict=True)]


def called(each: Typed, xs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    """Return what the op of a node computes."""
    values, dtype = each.node.attrs(attrs), _dtype(each)
    numbers = [tf.constant(value, dtype) for value in values.numbers().values()]
    found = call_op(each.node.op, dtype, tuple(values.static().items()), [*xs, *numbers])
    return [found[slot.name] for slot in each.node.op.outputs]


def floats(ys: Sequence[Tensor], dys: Sequence[Array]) -> tuple[list[Tensor], list[Tensor]]:
    """Return the outputs with a float dtype, and their cotangents as tensors."""
    pairs = [(y, dy) for y, dy in zip(ys, dys, strict=True) if y.dtype.is_floating]
    return [y for y, _ in pairs], [tf.convert_to_tensor(np.asarray(dy, y.dtype.as_numpy_dtype)) for y, dy in pairs]


def pulled_back(each: Typed, xs: Sequence[Array], dys: Sequence[Array], attrs: Attrs) -> list[Array | None]:
    """Return the gradient of the op of a node, in float64 where it can."""
    given = tensors_of(each, xs)
    with tf.GradientTape() as tape:
        tape.watch([x for x in given if x.dtype.is_floating])
        ys, directions = floats(called(each, given, attrs), dys)
    found = tape.gradient(ys, given, output_gradients=directions)
    return [None if dx is None else tf.convert_to_tensor(dx).numpy() for dx in found]


def _dtype(each: Typed) -> str:
    dtypes = each.node.op.dtypes
    return each.dtype or ("float64" if "float64" in dtypes else dtypes[0])
