"""Random rounding: the program of an op in which every result of TensorFlow is off by a random fraction of itself.

This is Monte Carlo arithmetic (Parker, "Monte Carlo Arithmetic", 1997; Denis, de Oliveira Castro and Petit,
"Verificarlo", 2016). How far the results move is how far the roundings inside the op may move them: it knows the size
of terms that cancel, where changes of the inputs show only that of their sum.

While a graph is built, TensorFlow reports each operation that is added to it, and takes other tensors in place of its
outputs. So this works in loops, branches and gradients too, and in functions of the author, which are inlined. It does
not look into those that are graphs already, such as the functions of a saved model.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

# Private, because no public function replaces the outputs of operations while a graph is built.
from tensorflow.python.framework import op_callbacks

# Private, because nothing public tells the graph of a loop or a branch from that of a function.
from tensorflow.python.ops.control_flow_v2_func_graphs import ControlFlowFuncGraph, WhileBodyFuncGraph

from app.autodiff.programs import Program
from app.runtime.calculus import Calculus, Gradients, Graph, Pullback, Tapes
from app.runtime.inlining import inlined
from app.runtime.kernels import COMPLEX_SUMS, KERNELS, UNKNOWN, WHOLE, Rounding
from app.runtime.modes import Results, Traits
from app.runtime.trace_entry import Reference
from ops import Array, Tensor

# The dtype with the fewest digits: a constant that is exact in it is so in any.
FEWEST_DIGITS = tf.bfloat16
# In the name of a function that TensorFlow traces for a single loop or branch under a tape, and of its gradient.
WRAPPER = "cflow_gradient_wrapper"
PHILOX = 1
# The width of a uniform distribution, in standard deviations.
WIDTH = 12**0.5
# The largest error that underflow may be, as a fraction of a number: a number that is lost altogether is no rounding.
MOST_LOST = 0.1


class Losses(NamedTuple):
    """What numbers near 0 lose: at most ``rounded``, and a tenth of themselves; those under ``flushed`` become 0."""

    rounded: float = 0.0
    flushed: float = 0.0


NO_LOSSES = Losses()


@dataclass(frozen=True)
class RandomRounding:
    """A program whose results of arithmetic are off, each by a random number, of deviation ``scale``, times itself.

    It has two more leaves: ``scale``, float64, and ``draw``, int64, which selects the random numbers. Numbers may also
    be off by what underflow loses. If ``has_tapes``, gradient functions of TensorFlow see the results that were
    replaced, but TensorFlow wraps loops in functions whose inside is not seen. Without, they see each result as its
    kernel has it, with the errors of all before it.
    """

    program: Program
    losses: Losses = NO_LOSSES
    has_tapes: bool = True

    @property
    def reference(self) -> Reference:
        """That of the program."""
        return self.program.reference._replace(kind=f"off, {self.losses}, {self.has_tapes}")

    @property
    def traits(self) -> Traits:
        """Those of the program, with the two more leaves."""
        traits = self.program.traits
        # It runs a few times, and its graph is several times as large as that of the program.
        return traits._replace(shapes=(*traits.shapes, (), ()), is_optimized=False)

    @property
    def op_name(self) -> bytes:
        """That of the program."""
        return self.program.op_name

    def describe(self, leaves: Sequence[Array]) -> str:
        """Return the leaves of the program as text."""
        return self.program.describe(leaves[:-2])

    def build(self, calculus: Calculus, leaves: Sequence[Tensor]) -> Results:
        """Return the program's results."""
        del calculus
        *xs, scale, draw = leaves
        program = self.program
        names = dict(zip(program.leaf_names, range(len(xs)), strict=True))
        whole = [slot for slot in program.op.inputs if not program.op.is_differentiable(slot, program.dtype)]
        # Kernels may reject an index that is off, even if it is a float.
        rounder = _Rounder(scale, draw, self.losses, [xs[names[slot.name]] for slot in whole])
        with rounder.active():
            for name in program.op.attrs.number_names():
                xs[names[name]] = rounder.off(xs[names[name]])
            if not self.has_tapes or "eager" not in program.op.modes:
                return program.build(Graph(), xs)
            with _VectorizedTapes(program.traits.orders) as tapes:
                return program.build(tapes, xs)


class _VectorizedTapes(Tapes):
    """Tapes for a graph, in which the number of directions is not known."""

    def each(self, pullback: Pullback, directions: Sequence[Tensor]) -> Gradients:
        """Apply a pullback to every direction as a graph does."""
        return Graph().each(pullback, directions)


class _Rounder:
    """Replaces the outputs of operations in a graph, and in the graphs of its loops and branches."""

    def __init__(self, scale: Tensor, draw: Tensor, losses: Losses, exact: Sequence[Tensor]) -> None:
        self._graph, self._scale, self._count = tf.compat.v1.get_default_graph(), scale, 0
        self._losses = losses
        self._key = tf.reshape(tf.cast(draw, tf.uint64), [1])
        self._exact = set(map(_name, exact))
        self._known = dict[tuple[tf.Graph, tf.DType], tuple[Tensor, Tensor]]()
        self._iterations = dict[tf.Graph, Tensor]()

    @contextmanager
    def active(self) -> Generator[None]:
        """Replace what this thread adds to the graph."""
        op_callbacks.add_op_callback(self._replacements)
        try:
            with inlined():
                yield
        finally:
            op_callbacks.remove_op_callback(self._replacements)

    def off(self, x: Tensor, size: Tensor | None = None) -> Tensor:
        """Return a tensor in which each number is off by a random multiple of itself, or of ``size`` times that.

        Real and imaginary parts are off by themselves: a small one may have all of its digits.
        """
        if x.dtype.is_complex:
            return tf.complex(self.off(tf.math.real(x), size), self.off(tf.math.imag(x), size))
        self._count += 1
        # Raw operations, because those of Python add several more to the graph of each. Numbers of float32 take a
        # fourth of the time of normal ones of float64, and errors need no more digits.
        drawn = tf.raw_ops.StatelessRandomUniformV2(
            shape=tf.raw_ops.Shape(input=x), key=self._key, counter=self._counter(), alg=PHILOX, dtype=tf.float32
        )
        noise = tf.raw_ops.Sub(x=tf.raw_ops.Cast(x=drawn, DstT=x.dtype), y=tf.constant(0.5, x.dtype))
        scale, one = self._numbers(x.dtype)
        factor = scale if size is None else tf.raw_ops.Mul(x=scale, y=tf.cast(size, x.dtype))
        # Not x + x * noise: an infinite number would become NaN.
        moved = tf.raw_ops.Mul(x=x, y=tf.raw_ops.AddV2(x=one, y=tf.raw_ops.Mul(x=factor, y=noise)))
        rounded, flushed = self._losses
        if rounded:
            moved += WIDTH * noise * tf.minimum(MOST_LOST * tf.abs(x), rounded)
        return tf.where(tf.abs(moved) < flushed, tf.zeros_like(moved), moved) if flushed else moved

    def _counter(self) -> Tensor:
        """Return what selects the random numbers of an operation: they differ in each iteration of a loop."""
        iteration = self._iterations.get(tf.compat.v1.get_default_graph())
        if iteration is None:
            return tf.constant(np.array([self._count, 0], np.uint64))
        return tf.stack([tf.constant(self._count, tf.uint64), iteration])

    def _numbers(self, dtype: tf.DType) -> tuple[Tensor, Tensor]:
        """Return the width of the errors and 1, once in each graph: those of a loop are not known outside of it."""
        key = tf.compat.v1.get_default_graph(), dtype
        if key not in self._known:
            self._known[key] = tf.cast(WIDTH * self._scale, dtype), tf.ones([], dtype)
        return self._known[key]

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
        if not self._is_within(graph, op_type):
            return None
        if op_type == "Placeholder":
            # What a loop or a branch gets: see _is_exact. The first one of the body of a loop counts its iterations.
            if isinstance(graph, WhileBodyFuncGraph) and graph not in self._iterations:
                self._iterations[graph] = tf.cast(outputs[0], tf.uint64)
            return None
        if not any(map(_is_rounded, outputs)):
            return None
        are_exact = all(map(self._is_exact, inputs))
        if op_type == "Const":
            are_exact = _has_few_digits(outputs[0])
        rounding = _rounding(op_type)
        if are_exact and (rounding == "exact" or op_type in WHOLE or op_type == "Const"):
            self._exact.update(map(_name, outputs))
            return None
        if rounding == "exact":
            return None
        is_simple = op_type in COMPLEX_SUMS if outputs[0].dtype.is_complex else rounding == "own"
        if not is_simple and op_type != "Const":
            outputs = self._repeated(op_type, inputs, outputs)
        return [self._replacement(op_type, y) for y in outputs]

    def _replacement(self, op_type: str, y: Tensor) -> Tensor:
        if not _is_rounded(y):
            return y
        return self.off(y) + self.off(tf.ones_like(y)) - 1 if _rounding(op_type) == "of size one" else self.off(y)

    def _repeated(self, op_type: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the outputs of an operation at inputs that are off: it is exact for those at best."""
        operation: Any = outputs[0].op
        if operation.op_def.is_stateful:
            return outputs
        moved = [self._moved(op_type, x) if _is_rounded(x) and not self._is_exact(x) else x for x in inputs]
        again = operation.graph.create_op(
            op_type, moved, [y.dtype for y in outputs], attrs=dict(operation.node_def.attr), op_def=operation.op_def
        )
        return again.outputs

    def _moved(self, op_type: str, x: Tensor) -> Tensor:
        rounding = _rounding(op_type)
        if rounding == "cumulative":
            return self.off(x, 2 * tf.sqrt(tf.cast(tf.shape(x)[0] if x.shape.rank == 1 else tf.size(x), tf.float64)))
        if rounding == "of matrices":
            largest = tf.reduce_max(tf.abs(x), axis=[-2, -1], keepdims=True) + tf.zeros_like(tf.math.real(x))
            size = tf.complex(largest, largest) if x.dtype.is_complex else largest
            return x + (self.off(size) - size)
        return self.off(x)

    def _is_exact(self, x: Tensor) -> bool:
        """Return whether a tensor is known to be exact; a loop changes its variables, so they are not."""
        if not _is_rounded(x):
            return x.dtype != tf.variant  # such a tensor is a list of others, as loops keep for their gradients
        if isinstance(x.graph, ControlFlowFuncGraph) and x.op.type == "Placeholder":
            return any(self._is_exact(outer) for outer, inner in x.graph.captures if inner is x)
        return _name(x) in self._exact

    def _is_within(self, graph: Any, op_type: str) -> bool:
        """Return whether a graph is that of the program, or of a loop or branch in it.

        The trace of another function would keep tensors of this graph, and is used elsewhere too. In the gradient of a
        loop or branch under a tape, few operations count: to replace all makes its graph many times as large.
        """
        is_wrapped = _rounding(op_type) == "of saturated" or op_type == "Placeholder"
        while isinstance(graph, ControlFlowFuncGraph) or (is_wrapped and WRAPPER in getattr(graph, "name", "")):
            graph = graph.outer_graph
        return graph is self._graph


def _rounding(op_type: str) -> Rounding:
    return KERNELS.get(op_type, UNKNOWN).rounding


def _is_rounded(x: Tensor) -> bool:
    return x.dtype.is_floating or x.dtype.is_complex


def _name(x: Tensor) -> tuple[int, str]:
    return id(x.graph), x.name


def _has_few_digits(constant: Tensor) -> bool:
    """Return whether every dtype can represent the numbers of a constant."""
    value: Array = np.asarray(tf.get_static_value(constant))
    value = np.stack([np.real(value), np.imag(value)])
    with np.errstate(over="ignore"):
        return bool(
            np.array_equal(value.astype(FEWEST_DIGITS.as_numpy_dtype).astype(value.dtype), value, equal_nan=True)
        )
