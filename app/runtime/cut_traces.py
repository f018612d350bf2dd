"""Partial evaluation of traces: what depends on known leaves alone is computed apart from what depends on others.

A trace of a derivative is cut in two. Its first part depends on the inputs alone: the forward pass, and whatever the
gradient computes without the cotangents. Its results that the second part needs are the *residuals*. The nodes are
those of the trace. TensorFlow optimises the parts apart, so in rare cases the last bits differ from an uncut call's.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.ops import EagerTensor  # private, as in ``app.runtime.functions``

from app.runtime import traces, vectorization
from app.runtime.functions import Function, array_of
from ops import Array, Tensor

CONSTANT = "Const"
# How many directions share a call, and for how many shapes a cut knows whether they may.
JOINED, SHAPES = 16, 64

Results: TypeAlias = dict[Any, Array | None]
"""Results by their keys, ``None`` for those that are missing, or not computed."""


class Trace(Protocol):
    """The part of ``app.runtime.modes.Trace`` that is used here."""

    kinds: dict[Any, tf.DType]
    shapes: Results
    missing: list[Any]

    @property
    def function(self) -> tf.types.experimental.ConcreteFunction:
        """The function."""
        ...

    @property
    def graph_def(self) -> Any:
        """The graph, with its functions."""
        ...

    def cut(self, leaves: int, known: int) -> "Cut":
        """Return the trace cut."""
        ...


class Cut:
    """A trace in mode graph, cut behind what its first ``known`` leaves determine."""

    def __init__(self, trace: Trace, leaves: int, known: int) -> None:
        """Cut a trace with so many leaves."""
        self.trace, self._count, self.has_run = trace, known, False
        inputs, captured = trace.function.inputs[:leaves], trace.function.inputs[leaves:]
        rest = _dependents(inputs[known:])
        results = dict(zip(trace.kinds, trace.function.outputs, strict=True))
        self._known = {key: y.name for key, y in results.items() if y.op.name not in rest}
        self._rest = {key: y.name for key, y in results.items() if y.op.name in rest}
        residuals = _crossing(trace.function, rest)
        self._first_names = list(dict.fromkeys([*self._known.values(), *(x.name for x in residuals)]))
        self._rest_names = list(dict.fromkeys(self._rest.values()))
        self._residuals = [x.name for x in residuals]
        whole = trace.graph_def
        nodes: dict[str, Any] = {node.name: node for node in whole.node}
        before = {name: node for name, node in nodes.items() if name not in rest}
        after = {name: node for name, node in nodes.items() if name in rest or node.op == CONSTANT}
        self._first_part = _Part(before, whole, [*inputs[:known], *captured], self._first_names)
        self._second_part = _Part(after, whole, [*inputs, *residuals, *captured], self._rest_names)
        self._first, self._second = Function(self._first_part.function()), Function(self._second_part.function())
        self._joined: Function | None = None
        self._may_join = OrderedDict[tuple[Any, ...], bool]()

    def expected_bytes(self, leaves: Sequence[Array]) -> int:
        """Return the bytes of the residuals whose shapes follow from those of the leaves."""
        shapes = [leaf.shape for leaf in leaves[: self._count]] + [x.shape for x in self.trace.function.captured_inputs]
        values = self._first_part.shapes_for(shapes)
        found = [values[name] for name in self._residuals]
        return sum((x.shape.num_elements() or 0) * x.dtype.size for x in found)

    def first(self, leaves: Sequence[Array]) -> tuple[Results, list[EagerTensor]]:
        """Return the results that the known leaves determine, and the residuals, which stay on the device."""
        tensors = [*self._first.tensors_of(leaves[: self._count]), *self.trace.function.captured_inputs]
        values, self.has_run = dict(zip(self._first_names, self._first.on_device(tensors), strict=True)), True
        results = {key: array_of(values[name]) for key, name in self._known.items()}
        missing = dict.fromkeys(self.trace.missing)
        return {**results, **self.trace.shapes, **missing}, [values[name] for name in self._residuals]

    def second(self, leaves: Sequence[Array], residuals: Sequence[EagerTensor]) -> Results:
        """Return the other results."""
        if not self._rest:
            return {}
        tensors = [*self._second.tensors_of(leaves), *residuals, *self.trace.function.captured_inputs]
        values = dict(zip(self._rest_names, self._second.on_device(tensors), strict=True))
        return {key: array_of(values[name]) for key, name in self._rest.items()}

    def seconds(self, members: Sequence[Sequence[Array]], residuals: Sequence[EagerTensor]) -> list[Results]:
        """Return the other results for up to ``JOINED`` members, in one call where each then keeps its bits.

        Kernels choose an algorithm by shapes alone, so the first call of each shape decides that. The members differ
        only in their directions. Raises ``NotTraced``.
        """
        shapes = tuple([(x.dtype, x.shape) for x in members[0]] + [x.shape for x in residuals])
        may_join = len(members) > 1 and self._may_join.get(shapes, bool(self._rest))
        joined = self._together(members, residuals) if may_join else None
        if joined is not None and shapes in self._may_join:
            return joined
        alone = [self.second(leaves, residuals) for leaves in members]
        if may_join:
            self._may_join[shapes] = joined is not None and all(map(_are_same, joined, alone))
            if len(self._may_join) > SHAPES:
                self._may_join.popitem(last=False)
        return alone

    def _together(self, members: Sequence[Sequence[Array]], residuals: Sequence[EagerTensor]) -> list[Results] | None:
        """Return the other results for several members from one call, ``None`` if that fails."""
        whole = [*members, *[members[-1]] * (JOINED - len(members))]
        stacked = [np.stack(column) for column in zip(*(leaves[self._count :] for leaves in whole), strict=True)]
        try:
            if self._joined is None:
                traces.require_tracing_allowed("graph")
                self._joined = Function(self._second_part.mapped(self._count, len(stacked)))
            leaves = self._joined.tensors_of([*members[0][: self._count], *stacked])
            found = self._joined.on_device([*leaves, *residuals, *self.trace.function.captured_inputs])
        except (tf.errors.OpError, ValueError, TypeError, NotImplementedError):
            return None  # those who run alone report what is wrong
        rows = dict(zip(self._rest_names, map(array_of, found), strict=True))
        return [{key: rows[name][i] for key, name in self._rest.items()} for i in range(len(members))]


def _dependents(leaves: Iterable[Tensor]) -> set[str]:
    """Return the names of the operations whose values depend on leaves."""
    found, waiting = set[str](), [leaf.op for leaf in leaves]
    while waiting:
        op = waiting.pop()
        if op.name not in found:
            found.add(op.name)
            waiting += [consumer for y in op.outputs for consumer in y.consumers()]
    return found


def _crossing(function: tf.types.experimental.ConcreteFunction, rest: set[str]) -> list[Tensor]:
    """Return the tensors that operations of the rest need from others; constants and leaves are in both parts."""
    leaves, found = {x.name for x in function.inputs}, dict[str, Tensor]()
    for op in function.graph.get_operations():
        for x in op.inputs if op.name in rest else ():
            if x.op.name not in rest and x.op.type != CONSTANT and x.name not in leaves:
                found[x.name] = x
    return list(found.values())


class _Part:
    """Some nodes of a ``whole`` graph, as a function from the tensors ``feeds`` to the tensors ``fetches``.

    The order among nodes of both parts is that of the parts.
    """

    def __init__(self, nodes: Mapping[str, Any], whole: Any, feeds: Sequence[Tensor], fetches: Sequence[str]) -> None:
        """Take those among the nodes that the fetches need."""
        self._feeds, self._fetches = feeds, fetches
        self._graph = tf.compat.v1.GraphDef(library=whole.library, versions=whole.versions)
        self._used = set[str]()
        given, taken = {x.name for x in feeds}, set[str]()
        self._computed = [name for name in fetches if name not in given]
        waiting = [*self._computed]
        while waiting:
            name = waiting.pop().split(":")[0]
            if name in taken:
                continue
            taken.add(name)
            node = self._graph.node.add()
            node.CopyFrom(nodes[name])
            del node.input[:]
            node.input.extend([x for x in nodes[name].input if x[0] != "^" or x[1:] in nodes])
            node.attr.pop("_class", None)  # it may name a node of the other part
            inputs = [_full(x) for x in node.input]
            self._used |= given.intersection(inputs)
            waiting += [x.lstrip("^") for x in inputs if x not in given]

    def function(self) -> tf.types.experimental.ConcreteFunction:
        """Return the function."""
        return self._traced(self._values, [x.shape for x in self._feeds])

    def _traced(
        self, values: Callable[[Sequence[Tensor]], list[Tensor]], shapes: Iterable[Any]
    ) -> tf.types.experimental.ConcreteFunction:
        specs = [tf.TensorSpec(shape, x.dtype) for shape, x in zip(shapes, self._feeds, strict=True)]
        return tf.function(lambda *xs: values(xs), input_signature=specs, autograph=False).get_concrete_function()

    def mapped(self, known: int, count: int) -> tf.types.experimental.ConcreteFunction:
        """Return the function for many values of the ``count`` feeds after the first ``known``, as rows of an axis."""
        vectorization.correct()
        stop = known + count

        def values(xs: Sequence[Tensor]) -> list[Tensor]:
            return tf.vectorized_map(lambda rows: self._values([*xs[:known], *rows, *xs[stop:]]), list(xs[known:stop]))

        of_rows = [known <= i < stop for i in range(len(self._feeds))]
        shapes = [
            tf.TensorShape([JOINED]).concatenate(x.shape) if y else x.shape
            for x, y in zip(self._feeds, of_rows, strict=True)
        ]
        return self._traced(values, shapes)

    def shapes_for(self, shapes: Sequence[Any]) -> dict[str, Tensor]:
        """Return tensors with the dtypes and shapes of the fetches, by name, for feeds of these shapes."""
        with tf.Graph().as_default():
            holders = [tf.compat.v1.placeholder(x.dtype, shape) for x, shape in zip(self._feeds, shapes, strict=True)]
            return dict(zip(self._fetches, self._values(holders), strict=True))

    def _values(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        values = dict(zip((x.name for x in self._feeds), tensors, strict=True))
        used = {name: x for name, x in values.items() if name in self._used}
        computed: Any = tf.import_graph_def(self._graph, input_map=used, return_elements=self._computed, name="")
        values.update(zip(self._computed, computed, strict=True))
        return [values[name] for name in self._fetches]


def _full(name: str) -> str:
    """Return the whole name of a tensor, as a node names it among its inputs."""
    return name if ":" in name else f"{name}:0"


def _are_same(joined: Results, alone: Results) -> bool:
    return all(a is not None and (b := joined[key]) is not None and same_bits(a, b) for key, a in alone.items())


def same_bits(known: Array, leaf: Array) -> bool:
    """Return whether arrays are equal, bit by bit."""
    if known is leaf:
        return True
    if known.dtype != leaf.dtype or known.shape != leaf.shape:
        return False
    a, b = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (known, leaf))
    return np.array_equal(a, b)
