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
from typing import Any, cast

import numpy as np
import tensorflow as tf

# Private, because no public function replaces the outputs of operations while a graph is built.
from tensorflow.python.framework import op_callbacks

# Private, because no public type tells a tensor from outside of a graph.
from tensorflow.python.framework.ops import EagerTensor

# Private, because nothing public tells the graph of a loop or a branch from that of a function.
from tensorflow.python.ops.control_flow_v2_func_graphs import ControlFlowFuncGraph, WhileBodyFuncGraph

from app.autodiff.programs import Program
from app.autodiff.random_errors import NO_LOSSES, Losses, RandomErrors, Units, eps_of, errors_of, has_few_digits
from app.runtime.calculus import Calculus, Gradients, Graph, Pullback, Tapes
from app.runtime.inlining import inlined
from app.runtime.kernels import ALONG_AXIS, COMPLEX_SUMS, CONTROL, KERNELS, UNKNOWN, WHOLE, Rounding
from app.runtime.modes import Around, Results, Traits
from app.runtime.trace_entry import Reference
from ops import FLOATS, Array, Tensor

# In the name of a function that TensorFlow traces for a single loop or branch under a tape, and of its gradient.
WRAPPER = "cflow_gradient_wrapper"


@dataclass(frozen=True)
class RandomRounding(Around[Program]):
    """A program whose results of arithmetic are off, each by a random number, of deviation ``scale``, times itself.

    It has two more leaves: ``scale``, float64, and ``draw``, int64, which selects the random numbers. Numbers may also
    be off by what underflow loses. If ``has_tapes``, gradient functions of TensorFlow see the results that were
    replaced, but TensorFlow wraps loops in functions whose inside is not seen. Without, they see each result as its
    kernel has it, with the errors of all before it.

    Unless the ``units`` are those of all dtypes, narrowing casts and constants of narrower dtypes are off too.
    """

    losses: Losses = NO_LOSSES
    has_tapes: bool = True
    units: Units = "all"

    @property
    def reference(self) -> Reference:
        """That of the program."""
        return self.program.reference._replace(kind=f"off, {self.losses}, {self.has_tapes}, {self.units}")

    @property
    def traits(self) -> Traits:
        """Those of the program, with the two more leaves."""
        traits = self.program.traits
        # It runs a few times, and its graph is several times as large as that of the program.
        return traits._replace(shapes=(*traits.shapes, (), ()), is_optimized=False)

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
        exact = [xs[names[slot.name]] for slot in whole]
        errors = RandomErrors(scale, draw, self.units, self.losses, is_elementwise=program.traits.has_few_shapes)
        rounder = _Rounder(errors, None if self.units == "all" else tf.as_dtype(program.dtype), exact)
        with rounder.active():
            for name in program.op.attrs.number_names():
                xs[names[name]] = errors.off(xs[names[name]])
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

    def __init__(self, errors: RandomErrors, widest: tf.DType | None, exact: Sequence[Tensor]) -> None:
        """Take the errors, and the dtype of the op, ``None`` if the errors of others are as large."""
        self._graph, self._errors, self._widest = tf.compat.v1.get_default_graph(), errors, widest
        self._exact, self._off = set(map(_name, exact)), errors.off
        self._captured = dict[tuple[int, str], Tensor]()

    @contextmanager
    def active(self) -> Generator[None]:
        """Replace what this thread adds to the graph."""
        op_callbacks.add_op_callback(self._replacements)
        try:
            with inlined():
                yield
        finally:
            op_callbacks.remove_op_callback(self._replacements)

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
        # What a loop or a branch gets: see _is_exact. The first one of the body of a loop counts its iterations.
        iterations = self._errors.iterations
        if op_type == "Placeholder" and isinstance(graph, WhileBodyFuncGraph) and graph not in iterations:
            iterations[graph] = tf.cast(outputs[0], tf.uint64)
        if op_type == "Placeholder" or not any(map(_is_rounded, outputs)):
            return None
        if op_type == "Const":
            return self._constant(outputs[0])
        rounding = _rounding(op_type)
        if all(map(self._is_exact, inputs)) and (rounding == "exact" or op_type in WHOLE):
            self._exact.update(map(_name, outputs))
            return None
        before = outputs
        if self._widest:
            outputs = self._with_moved_captures(op_type, inputs, outputs)
        if rounding == "exact":
            if self._widest and op_type == "Cast" and _is_rounded(inputs[0]):
                outputs = [self._moved_by_dtype(inputs[0], outputs[0])]
            return None if outputs is before else [*outputs]
        is_simple = op_type in COMPLEX_SUMS if outputs[0].dtype.is_complex else rounding == "own"
        if not is_simple:
            outputs = self._repeated(op_type, inputs, outputs)
        return [self._replacement(op_type, y) for y in outputs]

    def _constant(self, y: Tensor) -> list[Tensor] | None:
        if has_few_digits(y):
            self._exact.add(_name(y))
            return None
        moved = self._moved_constant(y, np.asarray(tf.get_static_value(y)))
        return None if moved is y else [moved]

    def _moved_constant(self, x: Tensor, value: Array) -> Tensor:
        size = self._widest and errors_of(value, x.dtype, self._widest)
        if size is None:
            return self._off(x)
        return self._off(x, tf.constant(size)) if size.any() else x

    def _with_moved_captures(
        self, op_type: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        """Return the outputs of an operation where constants from outside of the graph are off, if they are rounded.

        A call of the graph feeds these, whatever replaces the constants that TensorFlow makes of them.
        """
        moved = [self._moved_capture(x) for x in inputs]
        is_same = all(x is y for x, y in zip(inputs, moved, strict=True))
        return outputs if is_same or op_type in CONTROL else self._again(op_type, moved, outputs)

    def _moved_capture(self, x: Tensor) -> Tensor:
        name, graph = _name(x), cast(Any, x.graph)
        if name not in self._captured:
            found = None
            if graph is self._graph and _is_rounded(x) and _has_arithmetic(x) and name not in self._exact:
                found = next((outer for outer, inner in graph.captures if inner is x), None)
            self._captured[name] = self._moved_constant(x, found.numpy()) if isinstance(found, EagerTensor) else x
        return self._captured[name]

    def _moved_by_dtype(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the result of a cast, off if its dtype is the narrower one.

        A dtype without arithmetic counts when its numbers are cast to another.
        """
        own, other = eps_of(x.dtype), eps_of(y.dtype)
        if not _has_arithmetic(x) and own > other:
            return self._off(y, tf.constant(own / other, tf.float64))
        return self._off(y) if own < other and _has_arithmetic(y) else y

    def _replacement(self, op_type: str, y: Tensor) -> Tensor:
        if not _is_rounded(y):
            return y
        return self._off(y) + self._off(tf.ones_like(y)) - 1 if _rounding(op_type) == "of size one" else self._off(y)

    def _repeated(self, op_type: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the outputs of an operation at inputs that are off: it is exact for those at best."""
        moved = [self._moved(op_type, x, inputs) if _is_rounded(x) and not self._is_exact(x) else x for x in inputs]
        return self._again(op_type, moved, outputs)

    def _again(self, op_type: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the outputs of an operation at other inputs; the same outputs if it has a state."""
        operation: Any = outputs[0].op
        if operation.op_def.is_stateful:
            return outputs
        attrs, dtypes = dict(operation.node_def.attr), [y.dtype for y in outputs]
        return operation.graph.create_op(op_type, inputs, dtypes, attrs=attrs, op_def=operation.op_def).outputs

    def _moved(self, op_type: str, x: Tensor, inputs: Sequence[Tensor]) -> Tensor:
        rounding = _rounding(op_type)
        if rounding == "cumulative":
            # The terms of running sums are those along an axis, those of segments may be all.
            axis = inputs[1] % tf.rank(x) if op_type in ALONG_AXIS else None
            return self._off(x, 2 * tf.sqrt(tf.cast(tf.size(x) if axis is None else tf.shape(x)[axis], tf.float64)))
        if rounding == "of matrices":
            largest = tf.reduce_max(tf.abs(x), axis=[-2, -1], keepdims=True) + tf.zeros_like(tf.math.real(x))
            size = tf.complex(largest, largest) if x.dtype.is_complex else largest
            return x + (self._off(size) - size)
        return self._off(x)

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


def _has_arithmetic(x: Tensor) -> bool:
    return x.dtype.real_dtype.name in FLOATS


def _name(x: Tensor) -> tuple[int, str]:
    return id(x.graph), x.name
