"""What the gradient of a graph claims to be, and its value: the composition of what its nodes claim, in NumPy."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from app.graphs.contract import Typed
from app.graphs.wiring import Node, Value
from ops import Array, Arrays, Attrs, Claim, Derivative, Formula, Surrogate, many

Values = dict[Value, Array]
Apply = Callable[[Typed, list[Array]], Sequence[Array]]


class NumpyGraph:
    """A graph whose nodes are evaluated in NumPy, in float64."""

    def __init__(self, inputs: Sequence[str], nodes: Sequence[Typed], outputs: Sequence[Value]) -> None:
        """Take the parts of the graph."""
        self._inputs, self._nodes, self._outputs = tuple(inputs), tuple(nodes), tuple(outputs)

    @property
    def has_reference(self) -> bool:
        """Whether all nodes have one."""
        return all(each.node.op.reference is not None for each in self._nodes)

    def values(self, inputs: Sequence[Array], apply: Apply) -> Values:
        """Return all values of the graph for these inputs."""
        found = {Value("", name): x for name, x in zip(self._inputs, inputs, strict=True)}
        for each in self._nodes:
            ys = apply(each, arguments(each, found))
            names = [slot.name for slot in each.node.op.outputs]
            found |= {Value(each.node.name, name): np.asarray(y) for name, y in zip(names, ys, strict=True)}
        return found

    def reference(self, *inputs: Array, **attrs: Any) -> Any:
        """Return the outputs."""
        values = self.values(inputs, lambda each, xs: _reference(each, xs, attrs))
        found = [values[value] for value in self._outputs]
        return found[0] if len(found) == 1 else tuple(found)

    def claim(self, attrs: Attrs) -> Claim:
        """Return the claim of the graph with these attributes."""
        claims = [each.node.op.claim(each.node.attrs(attrs)) for each in self._nodes]
        firsts, seconds = [claim.first for claim in claims], [claim.second for claim in claims]
        second = None if None in seconds else Derivative()
        linear = all(claim.linear for claim in claims)
        if all(isinstance(first, Derivative) for first in firsts):
            return Claim(Derivative(), second, linear)
        if not any(isinstance(first, Formula) for first in firsts) and self.has_reference:
            return Claim(Surrogate(self._surrogate(attrs, firsts)), second, linear)
        return Claim(Formula(self._formula(attrs, firsts)), second, linear)

    def _surrogate(self, attrs: Attrs, firsts: Sequence[Any]) -> Callable[..., Arrays]:
        """Return the function whose derivative the gradient is: at each node, its surrogate moves its true value."""
        given, by_node = attrs.model_dump(), dict(zip(self._nodes, firsts, strict=True))

        def surrogate(primals: Sequence[Array], at: Sequence[Array]) -> Arrays:
            frozen = self.values(at, lambda each, xs: _reference(each, xs, given))

            def move(each: Typed, xs: list[Array]) -> Sequence[Array]:
                first = by_node[each]
                if isinstance(first, Derivative):
                    return _reference(each, xs, given)
                here = arguments(each, frozen)
                ys = [frozen[Value(each.node.name, slot.name)] for slot in each.node.op.outputs]
                moved = zip(ys, many(first.of(xs, here)), many(first.of(here, here)), strict=True)
                return [y + (new - old) for y, new, old in moved]

            values = self.values(primals, move)
            return [values[value] for value in self._outputs]

        return surrogate

    def _formula(self, attrs: Attrs, firsts: Sequence[Any]) -> Callable[..., Arrays]:
        """Return the vjp: the formulas of the nodes that claim one, and the gradients of the others' ops, chained."""
        by_node = dict(zip(self._nodes, firsts, strict=True))

        def formula(primals: Sequence[Array], cotangents: Sequence[Array]) -> Arrays:
            values = self.values(primals, lambda each, xs: _run(each, xs, attrs))
            dys = {value: np.zeros(y.shape) for value, y in values.items()}
            for value, dy in zip(self._outputs, cotangents, strict=True):
                dys[value] = dys[value] + dy
            for each in reversed(self._nodes):
                own = [dys[Value(each.node.name, slot.name)] for slot in each.node.op.outputs]
                xs, first = arguments(each, values), by_node[each]
                dxs = many(first.vjp(xs, own)) if isinstance(first, Formula) else _pull_back(each, xs, own, attrs)
                for slot, dx in zip(each.node.op.inputs, dxs, strict=True):
                    source = each.node.sources[slot.name]
                    if isinstance(source, Value) and dx is not None:
                        dys[source] = dys[source] + dx
            return [dys[Value("", name)] for name in self._inputs]

        return formula


def arguments(each: Typed, values: Mapping[Value, Array]) -> list[Array]:
    """Return the inputs of a node; constants are as they are in float64."""
    found: dict[str, Array] = {}
    for slot in sorted(each.node.op.inputs, key=lambda slot: slot.name in each.filled):
        source = each.node.sources[slot.name]
        if isinstance(source, Value):
            found[slot.name] = values[source]
        else:
            kind = (
                slot.dtypes[0] if len(slot.dtypes) == 1 else "float64" if "float64" in slot.dtypes else slot.dtypes[0]
            )
            x = source.array(kind)
            found[slot.name] = np.full(found[each.filled[slot.name]].shape, x) if slot.name in each.filled else x
    return [found[slot.name] for slot in each.node.op.inputs]


def _given(node: Node, attrs: Mapping[str, Any]) -> dict[str, Any]:
    return {**node.fixed, **{name: attrs[attr] for name, attr in node.bound.items()}}


def _reference(each: Typed, xs: Sequence[Array], attrs: Mapping[str, Any]) -> Sequence[Array]:
    assert each.node.op.reference is not None
    return many(each.node.op.reference(*xs, **_given(each.node, attrs)))


def _tensors(each: Typed, xs: Sequence[Array]) -> list[tf.Tensor]:
    op = each.node.op
    kinds = [op.dtype_of(slot, _dtype(each)) for slot in op.inputs]
    return [tf.convert_to_tensor(np.asarray(x, kind)) for x, kind in zip(xs, kinds, strict=True)]


def _dtype(each: Typed) -> str:
    dtypes = each.node.op.dtypes
    return each.dtype or ("float64" if "float64" in dtypes else dtypes[0])


def _call(each: Typed, tensors: Sequence[tf.Tensor], attrs: Attrs) -> list[tf.Tensor]:
    op, values = each.node.op, each.node.attrs(attrs)
    numbers = {name: tf.constant(value, _dtype(each)) for name, value in values.numbers().items()}
    return many(op.function(*tensors, **values.static(), **numbers))


def _run(each: Typed, xs: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    if each.node.op.reference is not None:
        return _reference(each, xs, attrs.model_dump())
    return [y.numpy() for y in _call(each, _tensors(each, xs), attrs)]


def _pull_back(each: Typed, xs: Sequence[Array], dys: Sequence[Array], attrs: Attrs) -> list[Array | None]:
    """Return the gradient of the op of a node, in float64 where it can."""
    tensors = _tensors(each, xs)
    with tf.GradientTape() as tape:
        tape.watch([x for x in tensors if x.dtype.is_floating])
        ys = _call(each, tensors, attrs)
    floats = [(y, dy) for y, dy in zip(ys, dys, strict=True) if y.dtype.is_floating]
    directions = [tf.convert_to_tensor(np.asarray(dy, y.dtype.as_numpy_dtype)) for y, dy in floats]
    found = tape.gradient([y for y, _ in floats], tensors, output_gradients=directions)
    return [None if dx is None else tf.convert_to_tensor(dx).numpy() for dx in found]
