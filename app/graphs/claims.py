"""What the gradient of a graph claims to be, at both orders, and its value: the composition of what its nodes claim."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from app.graphs.contract import Typed
from app.graphs.evaluation import (
    Apply,
    Values,
    add_to,
    arguments,
    called,
    computed,
    floats,
    outputs_of,
    pulled_back,
    referenced,
    sources_of,
    tensors_of,
    values_of,
    zeros_like,
)
from app.graphs.wiring import Value
from ops import Array, Arrays, Attrs, Claim, Derivative, Formula, Surrogate, Tensor, many


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
