"""Evaluate an op at many points: outputs and gradients with rows first, in as few TensorFlow calls as possible."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import tensorflow as tf

from app.autodiff.binding import moved
from app.autodiff.derivatives import Kind, gradient, values_of, values_up_to
from app.autodiff.directions import CALL_COST, CALL_ELEMENTS
from app.autodiff.evaluation import Evaluation
from app.autodiff.point import Arrays, Point, Spec
from app.autodiff.programs import MappedProgram, Program
from app.runtime import modes
from app.runtime.calculus import Calculus
from app.runtime.cancellation import Checkpoint
from app.runtime.double_precision import DOUBLE, in_double_precision
from app.runtime.kernels import CONTROL, LOOPS, nodes_of
from app.runtime.modes import Around, Key, Results, Trace, Traceable
from app.runtime.op_errors import op_errors
from app.runtime.trace_entry import Reference
from app.tensors.dtypes import DTYPES
from ops import Array, Tensor

HALVES = (tf.float16, tf.bfloat16)
K = TypeVar("K", bound=str | Key)
Operation: TypeAlias = Callable[[Point, Arrays, Arrays], Evaluation[dict[K, Array]]]
"""Returns an evaluation at a point, for cotangents and vectors; its results have a leading axis if these have."""
_NUMPY = {np.dtype(narrow.as_numpy_dtype): np.dtype(wide.as_numpy_dtype) for narrow, wide in DOUBLE.items()}


@dataclass(frozen=True)
class Rows:
    """An op at many points near ``point``: inputs that are not given keep their values there.

    Rows share a call as the op's batching allows: side by side, or in a loop if they depend on each other or if all
    rows use an input. If they are ``precise``, all is computed in float64, and all arrays are float64.
    """

    point: Point
    checkpoint: Checkpoint
    precise: bool = False

    def forward(self, inputs: Arrays) -> dict[str, Array]:
        """Return the outputs; all arrays have rows first."""
        return self._run(lambda point, dys, vectors: values_of(point), inputs, {}, {})

    def vjp(self, inputs: Arrays, cotangents: Arrays) -> dict[str, Array]:
        """Return the gradients of all differentiable inputs; all arrays, cotangents included, have rows first."""
        return self._run(lambda point, dys, vectors: gradient(point, dys), inputs, cotangents, {})

    def values_up_to(self, last: Kind, inputs: Arrays, cotangents: Arrays, vectors: Arrays) -> dict[Key, Array]:
        """Return the values of ``app.autodiff.derivatives.values_up_to``; all arrays have rows first."""
        return self._run(partial(values_up_to, last), inputs, cotangents, vectors)

    def _run(self, operation: Operation[K], inputs: Arrays, cotangents: Arrays, vectors: Arrays) -> dict[K, Array]:
        count = len(next(iter((*inputs.values(), *cotangents.values()))))
        size = sum(x.size for x in self.point.inputs.values()) + sum(dy[0].size for dy in cotangents.values())
        step = max(1, min(CALL_ELEMENTS // (size + 1), CALL_COST // (self.point.cost + 1)))
        every = {
            name: self._typed(inputs[name], x.dtype) if name in inputs else np.broadcast_to(x, (count, *x.shape))
            for name, x in self.point.inputs.items()
        }
        dtypes = self.point.spec.outputs.dtypes
        cotangents = {name: self._typed(dy, DTYPES[dtypes[name]].numpy) for name, dy in cotangents.items()}
        call = self._side_by_side if is_joinable(self.point.spec) else self._loop
        parts: list[dict[K, Array]] = []
        for start in range(0, count, step):
            self.checkpoint()
            rows = slice(start, start + step)
            xs, dys, vs = ({name: x[rows] for name, x in named.items()} for named in (every, cotangents, vectors))
            parts.append(call(operation, xs, dys, vs))
        return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}

    def _side_by_side(
        self, operation: Operation[K], inputs: Arrays, cotangents: Arrays, vectors: Arrays
    ) -> dict[K, Array]:
        """Flatten the rows of an elementwise op; join those of another along its leading axis, or add leading axes."""
        batching, example = self.point.spec.batching, next(iter(self.point.inputs.values()))
        if batching == "leading_axes":
            return self._computed(operation(moved(self.point, inputs), cotangents, vectors))
        is_elementwise, count = batching == "elementwise", len(next(iter(inputs.values())))
        flat, dys, vs = (
            {name: x.reshape(-1 if is_elementwise else (count * x.shape[1], *x.shape[2:])) for name, x in named.items()}
            for named in (inputs, cotangents, vectors)
        )
        results = self._computed(operation(moved(self.point, flat), dys, vs))
        return {
            key: y.reshape(count, *(example.shape if is_elementwise else (len(y) // count, *y.shape[1:])))
            for key, y in results.items()
        }

    def _loop(self, operation: Operation[K], inputs: Arrays, cotangents: Arrays, vectors: Arrays) -> dict[K, Array]:
        call, device = operation(replace(self.point, inputs=inputs), cotangents, vectors), self.point.spec.device
        count = len(next(iter(inputs.values())))
        numbers = range(len(inputs), len(inputs) + len(self.point.spec.numbers))
        leaves = [np.broadcast_to(x, (count,)) if i in numbers else x for i, x in enumerate(call.leaves)]
        with op_errors(self.point.op.name):
            program, leaves = self._program(call.program, leaves, [rows[0] for rows in leaves])
            trace = modes.trace_of(program, "graph", [rows[0] for rows in leaves], device)
            return call.finish(modes.run(MappedProgram(program, trace), "graph", leaves, device))

    def _computed(self, call: Evaluation[dict[K, Array]]) -> dict[K, Array]:
        if not self.precise:
            return call.run()
        with op_errors(self.point.op.name):
            program, leaves = self._program(call.program, call.leaves, call.leaves)
            return call.finish(modes.run(program, "graph", leaves, self.point.spec.device))

    def _typed(self, values: Array, dtype: np.dtype[Any]) -> Array:
        return np.asarray(values, precise_dtype(np.dtype(dtype)) if self.precise else dtype)

    def _program(
        self, program: Program, leaves: Sequence[Array], example: Sequence[Array]
    ) -> tuple[Traceable, Sequence[Array]]:
        """Return what computes a program at leaves like the example, and the leaves as it takes them."""
        if not self.precise:
            return program, leaves
        narrow = [x.astype(DTYPES[dtype].numpy) for x, dtype in zip(example, program.leaf_dtypes, strict=True)]
        trace = modes.trace_of(program, "graph", narrow, self.point.spec.device)
        return PreciseProgram(program, trace), [x.astype(precise_dtype(x.dtype), copy=False) for x in leaves]


def is_joinable(spec: Spec) -> bool:
    """Return whether points of an op can be rows of one: rows are independent, and no input is that of all rows."""
    return spec.batching != "none" and not spec.op.shared


def stack(rows: Sequence[Mapping[K, Array]]) -> dict[K, Array]:
    """Return the arrays of all rows by key, rows first."""
    return {key: np.stack([row[key] for row in rows]) for key in rows[0]}


def has_loop(point: Point) -> bool:
    """Return whether forward runs a loop of TensorFlow, so that a row takes as long as those of hundreds of kernels."""
    return not kernels(point).isdisjoint(LOOPS)


def has_branch_or_loop(point: Point) -> bool:
    """Return whether forward runs a loop or a branch: TensorFlow hides the insides of their gradients in functions."""
    return not kernels(point).isdisjoint(CONTROL)


def halves(point: Point) -> frozenset[str]:
    """Return the dtypes of half precision in which forward computes."""
    found = {value.type for node in nodes_of(_trace(point).graph_def) for value in node.attr.values()}
    return frozenset(dtype.name for dtype in HALVES if dtype.as_datatype_enum in found)


def kernels(point: Point) -> frozenset[str]:
    """Return the types of TensorFlow's operations in forward."""
    return _trace(point).kernels


def _trace(point: Point) -> Trace:
    call = values_of(point)
    with op_errors(point.op.name):
        return modes.trace_of(call.program, "graph", call.leaves, point.spec.device)


def numbers_of(point: Point) -> int:
    """Return how many numbers one row has, inputs and outputs together."""
    outputs = [shape or () for shape in point.output_shapes.values()]
    return point.size + sum(map(math.prod, outputs))


@dataclass(frozen=True)
class PreciseProgram(Around[Traceable]):
    """A program whose own ``trace``, in mode graph, is computed in float64; its leaves are ``wide``."""

    trace: Trace = field(compare=False)

    @property
    def reference(self) -> Reference:
        """That of the program."""
        return self.program.reference._replace(kind="in float64")

    def build(self, calculus: Calculus, leaves: Sequence[Tensor]) -> Results:
        """Return the program's results in float64, ``None`` for missing ones, without results that are shapes."""
        del calculus
        function, trace = self.trace.function, self.trace
        found = dict(zip(trace.kinds, function.outputs, strict=True))
        wanted = {key: y for key, y in found.items() if not isinstance(key[0], str)}
        values = in_double_precision(function, leaves, list(wanted.values()))
        return {**dict(zip(wanted, values, strict=True)), **dict.fromkeys(trace.missing)}


def precise_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return float64 for a narrower float, complex128 for complex64, and any other dtype as it is."""
    return _NUMPY.get(dtype, dtype)
