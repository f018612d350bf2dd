"""The mode of requests that name none: compiled by XLA where that is known to be right and faster, else a graph.

XLA fuses arithmetic into one loop, several times as fast as TensorFlow's kernels, which take one pass each. But it
drops what checks values, and compiles for every shape. So it is for elementwise ops, which run in buckets, and for
those only that do nothing but arithmetic, on the CPU, where it was measured.
"""

import logging
from functools import cache

import tensorflow as tf

from app.autodiff.programs import Program
from app.runtime import traces
from app.runtime.arithmetic import is_arithmetic
from app.runtime.calculus import Graph
from ops import Mode, Op

log = logging.getLogger("pullback")

DTYPES = ("float32", "float64")


def default_mode(op: Op, dtype: str, device: str) -> Mode:
    """Return the mode for an op, a dtype and a device; a graph once the op has used up its compilations."""
    if dtype not in DTYPES or device != "cpu" or not op_is_arithmetic(op) or not traces.TRACES.may_compile(op.name):
        return "graph"
    return "xla"


@cache
def op_is_arithmetic(op: Op) -> bool:
    """Tell whether an op, and its gradients, do nothing but arithmetic, whatever its attributes. Traces it once."""
    if op.batching != "elementwise" or "xla" not in op.modes or op.attrs.static_names():
        return False
    dtype = next((dtype for dtype in op.dtypes if dtype in DTYPES), None)
    if dtype is None:
        return False
    live = tuple(slot.name for slot in op.inputs if op.is_differentiable(slot, dtype))
    program = Program(op, dtype, (), "gradients", order=2, wrt=live)
    inputs = [tf.TensorSpec([None], op.dtype_of(slot, dtype)) for slot in op.inputs]
    numbers = [tf.TensorSpec([], dtype) for _ in op.attrs.number_names()]
    graph = tf.Graph()
    try:
        with graph.as_default():
            leaves = [tf.compat.v1.placeholder(spec.dtype, spec.shape) for spec in (*inputs, *numbers)]
            program.build(Graph(), leaves)
    except Exception:
        # What is wrong with it is told to whoever asks for it.
        log.debug("op %s cannot be traced", op.name, exc_info=True)
        return False
    return is_arithmetic(graph)
