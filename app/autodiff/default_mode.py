"""The mode of requests without a mode: XLA where it is known to be correct and faster, otherwise a graph.

XLA fuses arithmetic into one loop, which is several times as fast as TensorFlow's kernels with one pass each. But it
drops assertions on values, and compiles for every shape. So it is the default only for elementwise ops, which are
padded to a few lengths, that do nothing but arithmetic, on the CPU, where it was measured. A posted graph is not tried:
that takes half a second of CPU, and anyone may post many.
"""

import logging
from itertools import product

import numpy as np
import tensorflow as tf

from app.autodiff.derived import origin
from app.autodiff.kept import Kept
from app.autodiff.programs import Program
from app.autodiff.transforms import Transform
from app.errors import Postponed
from app.runtime.calculus import Graph
from app.runtime.cancellation import uninterrupted
from app.runtime.journal import JOURNAL
from app.runtime.kernels import is_arithmetic
from app.runtime.modes import Trace
from app.runtime.refused import REFUSED, refused
from app.runtime.trace_limits import Limits, limited
from app.runtime.traces import require_tracing_allowed
from ops import Array, Mode, Op

log = logging.getLogger("pullback")

XLA_DTYPES = ("float32", "float64")
# XLA compiles a composition of more parts, with its derivatives, for seconds.
MAX_PARTS = 32
# The most nodes of an op with two derivatives; to trace them takes half a second, and to compile them several.
MAX_TRIED = 2048
CPU = "/device:CPU:0"
# Far from the ends of float32, so that the squares of derivatives neither overflow nor underflow.
NUMBERS = (
    0.0,
    -0.0,
    0.5,
    1.0,
    -1.0,
    2.0,
    -3.0,
    10.0,
    -10.0,
    40.0,
    -40.0,
    1e3,
    -1e3,
    1e-6,
    -1e-6,
    np.inf,
    -np.inf,
    np.nan,
)
WHOLE = (-3, -1, 0, 1, 2, 7)
ROWS, SEED = 512, 0
# Roundings may differ by more in a number that cancels, as a part of itself or of a usual result.
RELATIVE = 1e-3


def default_mode(op: Op, dtype: str, device: str) -> Mode:
    """Return the mode for an op, a dtype and a device; raises ``NotTraced`` as ``op_is_arithmetic`` does."""
    base = origin(op)[0]
    is_posted = base.owner != base.name  # such graphs share the part of one owner
    if is_posted or (REFUSED and refused(base)):
        return "graph"  # without a trace, which may be what crashes
    return "xla" if dtype in XLA_DTYPES and device == "cpu" and op_is_arithmetic(op) else "graph"


def op_is_arithmetic(op: Op) -> bool:
    """Report whether an op and its gradients do nothing but arithmetic, for any attributes.

    Traces and compiles an op once, with two derivatives, and compares what XLA and a graph compute. Raises
    ``NotTraced`` if this thread must not trace.
    """
    base = origin(op)[0]
    return len(base.parts) <= MAX_PARTS and all(map(_is_arithmetic, (*base.parts, base)))


@Kept
def _is_arithmetic(op: Op) -> bool:
    if op.batching_for(op.attrs()) != "elementwise" or "xla" not in op.modes or op.attrs.static_names():
        return False
    dtype = next((dtype for dtype in op.dtypes if dtype in XLA_DTYPES), None)
    if dtype is None:
        return False
    inputs = tuple(slot.name for slot in op.inputs if op.is_differentiable(slot, dtype))
    outputs = tuple(slot.name for slot in op.outputs if op.is_differentiable(slot, dtype))
    first, second = (Transform("vjp", inputs, of, ones=True) for of in (outputs, inputs))
    program = Program(op, dtype, (), (first, second), kept=(0, 1))
    require_tracing_allowed("xla")
    specs = [tf.TensorSpec([None], op.dtype_of(slot, dtype)) for slot in op.inputs]
    specs += [tf.TensorSpec([], dtype) for _ in op.attrs.number_names()]
    graph, limits = tf.Graph(), Limits(op.name, MAX_TRIED, lambda: None)
    try:
        shown = [np.zeros([1] * len(spec.shape), spec.dtype.as_numpy_dtype) for spec in specs]
        with uninterrupted(), JOURNAL.running(program, "graph", shown), graph.as_default(), limited(limits):
            leaves = [tf.compat.v1.placeholder(spec.dtype, spec.shape) for spec in specs]
            program.build(Graph(), leaves)
        if limits.stopped is not None or not is_arithmetic(graph):
            return False
        with uninterrupted(), JOURNAL.running(program, "xla", shown):
            return agrees(program)
    except Postponed:
        raise
    except BaseException:
        # The author's code may exit. Requests for the op report the error.
        log.debug("op %s cannot be traced", op.name, exc_info=True)
        return False


# XLA may rewrite what it compiles, such as log(exp(x)) as x. So a table of kernels cannot promise the same answers.
def agrees(program: Program) -> bool:
    """Return whether XLA computes what a graph does; raise whatever the op and TensorFlow raise.

    The traces are dropped: those of requests have other shapes.
    """
    leaves = [*_inputs(program.op, program.dtype), *_numbers(program.op, program.dtype)]
    specs = [tf.TensorSpec(leaf.shape, tf.as_dtype(leaf.dtype)) for leaf in leaves]
    with tf.device(CPU), np.errstate(all="ignore"):
        graph = Trace(program, "graph", specs, CPU)(leaves)
        xla = Trace(program, "xla", specs, CPU)(leaves)
        return all(_are_equal(graph[key], xla[key]) for key in graph if not isinstance(key[0], str))


def _inputs(op: Op, dtype: str) -> list[Array]:
    """Return the numbers of the examples and special ones: all combinations, or many random ones."""
    kinds = [tf.as_dtype(op.dtype_of(slot, dtype)) for slot in op.inputs]
    choices = [_special(op, i, kind) for i, kind in enumerate(kinds)]
    rows = list(product(*choices))
    if len(rows) > ROWS:
        rng = np.random.default_rng(SEED)
        rows = [tuple(column[int(rng.integers(len(column)))] for column in choices) for _ in range(ROWS)]
    for example in op.examples:
        every = np.broadcast_arrays(*(np.asarray(example.inputs[slot.name]) for slot in op.inputs))
        rows += list(zip(*(np.ravel(x)[:ROWS].tolist() for x in every), strict=True))
    return [
        np.asarray(column, kind.as_numpy_dtype) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)
    ]


def _special(op: Op, number: int, kind: tf.DType) -> tuple[float, ...]:
    slot = op.inputs[number]
    if kind.is_bool:
        return (False, True)
    if kind.is_integer:
        return WHOLE
    return (*NUMBERS, *slot.domain, *slot.kinks, *slot.poles)


def _numbers(op: Op, dtype: str) -> list[Array]:
    return [np.asarray(value, dtype) for value in op.attrs().numbers().values()]


def _are_equal(one: Array | None, other: Array | None) -> bool:
    """Return whether the same numbers are NaN and infinite, and the others nearly equal."""
    if one is None or other is None:
        return one is other
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    is_finite = np.isfinite(one)
    if not np.array_equal(one[~is_finite], other[~is_finite], equal_nan=True):
        return False
    a, b = one[is_finite], other[is_finite]
    usual = np.median(np.abs(a[a != 0])) if a.any() else 0.0
    return bool((np.abs(a - b) <= RELATIVE * (np.abs(a) + usual)).all())
