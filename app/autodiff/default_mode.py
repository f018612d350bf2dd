"""The mode of requests without a mode: XLA where it is known to be correct and faster, otherwise a graph.

XLA fuses arithmetic into one loop, which is several times as fast as TensorFlow's kernels with one pass each. But it
drops assertions on values, and compiles for every shape. So it is the default only for elementwise ops, which are
padded to a few lengths, that do nothing but arithmetic, on the CPU, where it was measured. A posted graph is not tried:
that takes half a second of CPU, and anyone may post many.
"""

import logging

import numpy as np
import tensorflow as tf

from app.autodiff.derived import origin
from app.autodiff.kept import Kept
from app.autodiff.mode_trial import agrees
from app.autodiff.programs import Program
from app.autodiff.transforms import Transform
from app.errors import Postponed
from app.runtime.arithmetic import is_arithmetic
from app.runtime.calculus import Graph
from app.runtime.cancellation import uninterrupted
from app.runtime.journal import JOURNAL
from app.runtime.refused import REFUSED, refused
from app.runtime.trace_limits import Limits, limited
from app.runtime.traces import require_tracing_allowed
from ops import Mode, Op

log = logging.getLogger("pullback")

XLA_DTYPES = ("float32", "float64")
# XLA compiles a composition of more parts, with its derivatives, for seconds.
MAX_PARTS = 32
# The most nodes of an op with two derivatives; to trace them takes half a second, and to compile them several.
MAX_TRIED = 2048


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
