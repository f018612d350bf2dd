"""What the gradient of a graph claims to be, at both orders, and its value: what its nodes claim, composed in NumPy."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from app.graphs.composition import call_op
from app.graphs.contract import Typed
from app.graphs.wiring import Value
from ops import Array, Arrays, Attrs, Claim, Derivative, Formula, Surrogate, Tensor, many

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
        return values_of(self._inputs, self._nodes, inputs, apply)

    def reference(self, *inputs: Array, **attrs: Any) -> Any:
        """Return the outputs."""
        values = self.values(inputs, lambda each, xs: referenced(each, xs, attrs))
        found = [values[value] for value in self._outputs]
        return found[0] if len(found) == 1 else tuple(found)

    def claim(self, attrs: Attrs) -> Claim:
        """Return the claim of the graph with these attributes."""
        claims = [each.node.op.claim(each.node.attrs(attrs)) for each in self._nodes]
        firsts, seconds = [claim.first for claim in claims], [claim.second for claim in claims]
        second = None if None in seconds else self._second(attrs, firsts, seconds)
        linear = all(claim.linear for claim in claims)
        if all(isinstance(first, Derivative) for first in firsts):
            return Claim(Derivative(), second, linear)
        if not any(isinstance(first, Formula) for first in firsts) and self.has_reference:
            return Claim(Surrogate(self._surrogate(attrs, firsts)), second, linear)
        return Claim(Formula(self._formula(attrs, firsts)), second, linear)

    def _second(self, attrs: Attrs, firsts: Sequence[Any], seconds: Sequence[Any]) -> Derivative | Formula:
        """Return the claim of the second order.

        Where the gradient of a node is not the derivative of its value, neither is that of what comes after it: the
        second order goes through the node by its gradient, and the numbers of the vjp by its value.
        """
        if all(isinstance(each, Derivative) for each in (*firsts, *seconds)):
            return Derivative()
        return Formula(second_formula(self._inputs, self._nodes, self._outputs, attrs, seconds))

    def _surrogate(self, attrs: Attrs, firsts: Sequence[Any]) -> Callable[..., Arrays]:
        """Return the function whose derivative the gradient is: at each node, its surrogate moves its true value."""
        given, by_node = attrs.model_dump(), dict(zip(self._nodes, firsts, strict=True))

        def surrogate(primals: Sequence[Array], at: Sequence[Array]) -> Arrays:
            frozen = self.values(at, lambda each, xs: referenced(each, xs, given))

            def move(each: Typed, xs: list[Array]) -> Sequence[Array]:
                first = by_node[each]
                if isinstance(first, Derivative):
                    return referenced(each, xs, given)
                here = arguments(each, frozen)
                ys = [frozen[value] for value in outputs_of(each)]
                moved = zip(ys, many(first.of(xs, here)), many(first.of(here, here)), strict=True)
                return [y + (new - old) for y, new, old in moved]

            values = self.values(primals, move)
            return [values[value] for value in self._outputs]

        return surrogate

    def _formula(self, attrs: Attrs, firsts: Sequence[Any]) -> Callable[..., Arrays]:
        """Return the vjp: the formulas of the nodes that claim one, and the gradients of the others' ops, chained."""
        by_node = dict(zip(self._nodes, firsts, strict=True))

        def formula(primals: Sequence[Array], cotangents: Sequence[Array]) -> Arrays:
            values = self.values(primals, lambda each, xs: computed(each, xs, attrs))
            dys = zeros_like(values)
            add_to(dys, self._outputs, cotangents)
            for each in reversed(self._nodes):
                xs, own, first = arguments(each, values), [dys[value] for value in outputs_of(each)], by_node[each]
                dxs = many(first.vjp(xs, own)) if isinstance(first, Formula) else pulled_back(each, xs, own, attrs)
                add_to(dys, sources_of(each), dxs)
            return [dys[Value("", name)] for name in self._inputs]

        return formula


def second_formula(
    inputs: Sequence[str], nodes: Sequence[Typed], outputs: Sequence[Value], attrs: Attrs, seconds: Sequence[Any]
) -> Callable[..., Arrays]:
    """Return the cotangents of the inputs x for directions ddx of their gradients dx, at cotangents dy of the outputs.

    The reverse pass computes dy of each node. Then ddx goes forward through it: each node turns ddx of its inputs into
    ddy of its outputs, and leaves the cotangents that its claim states. Last, these go back as in the first pass.
    """
    by_node = dict(zip(nodes, seconds, strict=True))

    def formula(primals: Sequence[Array], cotangents: Sequence[Array], vectors: Sequence[Array]) -> Arrays:
        values = values_of(inputs, nodes, primals, lambda each, xs: computed(each, xs, attrs))
        xs = {each: arguments(each, values) for each in nodes}
        dys, ddys, found = zeros_like(values), zeros_like(values), zeros_like(values)

        def go_back(sums: Values) -> None:
            for each in reversed(nodes):
                own = [sums[value] for value in outputs_of(each)]
                add_to(sums, sources_of(each), pulled_back(each, xs[each], own, attrs))

        add_to(dys, outputs, cotangents)
        go_back(dys)
        add_to(ddys, [Value("", name) for name in inputs], vectors)
        for each in nodes:
            sources, own, second = sources_of(each), [dys[value] for value in outputs_of(each)], by_node[each]
            pairs = zip(sources, xs[each], strict=True)
            ddxs = [np.zeros(np.shape(x)) if source is None else ddys[source] for source, x in pairs]
            of_x, of_dy = _pulled_back_again(each, xs[each], own, ddxs, attrs)
            add_to(found, sources, many(second.vjp(xs[each], own, ddxs)) if isinstance(second, Formula) else of_x)
            add_to(ddys, outputs_of(each), of_dy)
        go_back(found)
        return [found[Value("", name)] for name in inputs]

    return formula


def _pulled_back_again(
    each: Typed, xs: Sequence[Array], dys: Sequence[Array], ddxs: Sequence[Array], attrs: Attrs
) -> tuple[list[Array | None], list[Array | None]]:
    """Return the cotangents of the inputs of a node and of its dy, which its op computes for ddx."""
    given = tensors_of(each, xs)
    with tf.GradientTape(persistent=True) as outer:
        outer.watch([x for x in given if x.dtype.is_floating])
        with tf.GradientTape() as inner:
            inner.watch([x for x in given if x.dtype.is_floating])
            ys = called(each, given, attrs)
            some, directions = floats(ys, dys)
        outer.watch(directions)
        dxs = inner.gradient(some, given, output_gradients=directions)
    pairs = [(tf.convert_to_tensor(dx), ddx) for dx, ddx in zip(dxs, ddxs, strict=True) if dx is not None]
    targets = [dx for dx, _ in pairs]
    seeds = [tf.convert_to_tensor(np.asarray(ddx, dx.dtype.as_numpy_dtype)) for dx, ddx in pairs]

    def pulled(sources: Sequence[Tensor]) -> list[Array | None]:
        found = outer.gradient(targets, list(sources), output_gradients=seeds)
        return [None if value is None else tf.convert_to_tensor(value).numpy() for value in found]

    of_floats = iter(pulled(directions))
    return pulled(given), [next(of_floats) if y.dtype.is_floating else None for y in ys]
