"""Random rounding: the program of an op in which every result of TensorFlow is off by a random fraction of itself.

This is Monte Carlo arithmetic (Parker, "Monte Carlo Arithmetic", 1997; Denis, de Oliveira Castro and Petit,
"Verificarlo", 2016). How far the results move is how far the roundings inside the op may move them: it knows the size
of terms that cancel, where changes of the inputs show only that of their sum.

While a graph is built, TensorFlow reports each operation that is added to it, and takes other tensors in place of its
outputs. So this works in loops, branches and gradients too. It does not look into functions that the op calls as a
whole, such as a ``tf.function`` of the author: see ``_Rounder.outputs``.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

# Private, because no public function replaces the outputs of operations while a graph is built.
from tensorflow.python.framework import op_callbacks

# Private, because nothing public tells the graph of a loop or a branch from that of a function.
from tensorflow.python.ops.control_flow_v2_func_graphs import ControlFlowFuncGraph

from app.autodiff.binding import moved
from app.autodiff.derivatives import Kind, values_up_to
from app.autodiff.point import Arrays, Point
from app.autodiff.programs import MappedProgram, Program
from app.gradcheck.operation_types import ARITHMETIC, CUMULATIVE, EXACT, OF_MATRICES
from app.runtime import modes
from app.runtime.calculus import Calculus, Graph, Tapes
from app.runtime.modes import Key, Results, Traits
from app.runtime.op_errors import op_errors
from ops import Array, Tensor

# The dtype with the fewest digits: a constant that is exact in it is so in any.
FEWEST_DIGITS = tf.bfloat16
PHILOX = 1
# How often the errors are drawn.
DRAWS = 10


@dataclass(frozen=True)
class RandomRounding:
    """A program whose results of arithmetic are off, each by a random number, of deviation ``scale``, times itself.

    It has two more leaves: ``scale``, float64, and ``draw``, int64, which selects the random numbers.
    """

    program: Program

    @property
    def traits(self) -> Traits:
        """Those of the program, with the two more leaves."""
        traits = self.program.traits
        return traits._replace(shapes=(*traits.shapes, (), ()))

    def build(self, calculus: Calculus, leaves: Sequence[Tensor]) -> Results:
        """Return the program's results.

        Tapes show gradient functions the results that were replaced; ``tf.gradients`` shows them those without errors.
        """
        del calculus
        *xs, scale, draw = leaves
        program = self.program
        names = dict(zip(program.leaf_names, range(len(xs)), strict=True))
        whole = [slot for slot in program.op.inputs if not program.op.is_differentiable(slot, program.dtype)]
        rounder = _Rounder(scale, draw, [xs[names[slot.name]] for slot in whole])
        with rounder.active():
            for name in program.op.attrs.number_names():
                xs[names[name]] = rounder.off(xs[names[name]])
            if "eager" not in program.op.modes:
                return program.build(Graph(), xs)
            with Tapes(program.traits.orders) as tapes:
                return program.build(tapes, xs)


def with_errors(
    last: Kind, point: Point, cotangents: Arrays, vectors: Arrays, scales: Sequence[float]
) -> list[list[dict[Key, Array]]]:
    """Return the values of ``app.autodiff.derivatives.values_up_to`` with random errors of each relative size.

    There are ``DRAWS`` sets of values for each scale, with the same random numbers for all scales, and one for 0.
    Raises ``Unprocessable`` or ``OpFailed`` if the op rejects numbers that are off, as in an assertion.
    """
    call = _side_by_side if point.spec.batching == "elementwise" else _loop
    with op_errors(point.op.name):
        return call(last, point, cotangents, vectors, scales)


def _side_by_side(
    last: Kind, point: Point, cotangents: Arrays, vectors: Arrays, scales: Sequence[float]
) -> list[list[dict[Key, Array]]]:
    """Evaluate copies of the point in one call for each scale: each number has errors of its own."""
    found: list[list[dict[Key, Array]]] = []
    for scale in scales:
        count = DRAWS if scale else 1
        inputs, dys, vs = (
            {name: np.tile(x.ravel(), count) for name, x in named.items()}
            for named in (point.inputs, cotangents, vectors)
        )
        call = values_up_to(last, moved(point, inputs), dys, vs)
        leaves = [*call.leaves, np.array(scale), np.array(0)]
        values = call.finish(modes.run(RandomRounding(call.program), "graph", leaves, point.spec.device))
        shape = next(iter(point.inputs.values())).shape
        parts = {key: value.reshape(count, *shape) for key, value in values.items()}
        found.append([{key: part[i] for key, part in parts.items()} for i in range(count)])
    return found


def _loop(
    last: Kind, point: Point, cotangents: Arrays, vectors: Arrays, scales: Sequence[float]
) -> list[list[dict[Key, Array]]]:
    """Evaluate the point again and again, in one call."""
    draws = [(scale, draw) for scale in scales for draw in range(DRAWS if scale else 1)]
    inputs, dys, vs = (
        {name: np.broadcast_to(x, (len(draws), *x.shape)) for name, x in named.items()}
        for named in (point.inputs, cotangents, vectors)
    )
    call, device = values_up_to(last, replace(point, inputs=inputs), dys, vs), point.spec.device
    numbers = range(len(inputs), len(inputs) + len(point.spec.numbers))
    leaves = [np.broadcast_to(x, (len(draws),)) if i in numbers else x for i, x in enumerate(call.leaves)]
    leaves += [np.array(column) for column in zip(*draws, strict=True)]
    program = RandomRounding(call.program)
    trace = modes.trace_of(program, "graph", [rows[0] for rows in leaves], device)
    values = call.finish(modes.run(MappedProgram(program, trace), "graph", leaves, device))
    every = iter({key: value[i] for key, value in values.items()} for i in range(len(draws)))
    return [[next(every) for _ in range(DRAWS if scale else 1)] for scale in scales]


class _Rounder:
    """Replaces the outputs of operations in a graph, and in the graphs of its loops and branches."""

    def __init__(self, scale: Tensor, draw: Tensor, exact: Sequence[Tensor]) -> None:
        # Kernels may reject an index that is off, even if it is a float.
        self._exact = {id(x) for x in exact}
        self._graph, self._scale, self._count = tf.compat.v1.get_default_graph(), scale, 0
        self._key = tf.reshape(tf.cast(draw, tf.uint64), [1])

    @contextmanager
    def active(self) -> Generator[None]:
        """Replace what this thread adds to the graph."""
        op_callbacks.add_op_callback(self._replacements)
        try:
            yield
        finally:
            op_callbacks.remove_op_callback(self._replacements)

    def off(self, x: Tensor, size: Tensor | float = 1.0) -> Tensor:
        """Return a tensor in which each number is off by a random multiple of itself, or of ``size`` times that."""
        self._count += 1
        counter = tf.constant(np.array([self._count, 0], np.uint64))
        noise = tf.raw_ops.StatelessRandomNormalV2(
            shape=tf.shape(x), key=self._key, counter=counter, alg=PHILOX, dtype=x.dtype
        )
        return x * (1 + tf.cast(self._scale, x.dtype) * tf.cast(size, x.dtype) * noise)

    def _replacements(
        self,
        op_type: str,
        inputs: Sequence[Tensor],
        attrs: object,
        outputs: Sequence[Tensor],
        *,
        op_name: str | None,
        graph: Any,
    ) -> list[Tensor] | None:
        """Return what replaces the outputs of a new operation, ``None`` if they stay."""
        del attrs, op_name
        if op_type in EXACT or not self._is_within(graph) or not any(y.dtype.is_floating for y in outputs):
            return None
        if op_type == "Const":
            return None if _is_exact(outputs[0]) else [self.off(outputs[0])]
        if op_type not in ARITHMETIC:
            outputs = self._repeated(op_type, inputs, outputs)
        return [self.off(y) if y.dtype.is_floating else y for y in outputs]

    def _repeated(self, op_type: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the outputs of an operation at inputs that are off: it is exact for those at best."""
        operation: Any = outputs[0].op
        if operation.op_def.is_stateful:
            return outputs
        moved = [self._moved(op_type, x) if x.dtype.is_floating and id(x) not in self._exact else x for x in inputs]
        again = operation.graph.create_op(
            op_type, moved, [y.dtype for y in outputs], attrs=dict(operation.node_def.attr), op_def=operation.op_def
        )
        return again.outputs

    def _moved(self, op_type: str, x: Tensor) -> Tensor:
        if op_type in CUMULATIVE:
            return self.off(x, 2 * tf.sqrt(tf.cast(tf.shape(x)[0] if x.shape.rank == 1 else tf.size(x), tf.float64)))
        if op_type in OF_MATRICES:
            largest = tf.reduce_max(tf.abs(x), axis=[-2, -1], keepdims=True)
            return x + (self.off(largest + tf.zeros_like(x)) - largest)
        return self.off(x)

    def _is_within(self, graph: Any) -> bool:
        """Return whether a graph is that of the program, or of a loop or branch in it.

        The trace of another function would keep tensors of this graph, and is used elsewhere too.
        """
        while isinstance(graph, ControlFlowFuncGraph):
            graph = graph.outer_graph
        return graph is self._graph


def _is_exact(constant: Tensor) -> bool:
    """Return whether every dtype can represent the numbers of a constant."""
    value = np.asarray(tf.get_static_value(constant))
    with np.errstate(over="ignore"):
        return bool(
            np.array_equal(value.astype(FEWEST_DIGITS.as_numpy_dtype).astype(value.dtype), value, equal_nan=True)
        )
