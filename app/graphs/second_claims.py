"""The second order of a graph whose nodes claim a second order: reverse over reverse, node by node."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from app.graphs.contract import Typed
from app.graphs.evaluation import (
    Values,
    add_to,
    arguments,
    called,
    computed,
    floats,
    outputs_of,
    pulled_back,
    sources_of,
    tensors_of,
    values_of,
    zeros_like,
)
from app.graphs.wiring import Value
from ops import Array, Arrays, Attrs, Formula, Tensor, many


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
