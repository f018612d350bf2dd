"""Calls of a graph on the thread of the caller.

TensorFlow runs a function on its own threads, and the caller waits: for small tensors, that takes several times as
long as the kernels. A session can run its graph on the calling thread, but then nothing can cancel it.
"""

import ctypes
import platform
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.config_pb2 import CallableOptions

from ops import Array, Tensor

# TensorFlow's own threads take subnormal numbers for zero, and write zero for them. The calling thread must do the same
# during a call, for equal bits: two bits of its register MXCSR, the last word that fegetenv stores.
FLUSH = 1 << 15 | 1 << 6
_Environment = ctypes.c_uint32 * 8
# PyDLL does not release the interpreter's lock, which would take longer than both functions.
_libm = ctypes.PyDLL("libm.so.6")


def can_run_here(device: str) -> bool:
    """Report whether a graph on this device gives the same bits on the calling thread as on TensorFlow's threads."""
    return "CPU" in device and platform.machine() == "x86_64"


class OnThisThread:
    """A graph as a function from NumPy arrays to NumPy arrays; it runs on the CPU, on the thread that calls it."""

    def __init__(self, graph: tf.Graph, feeds: Sequence[Tensor], fetches: Sequence[Tensor]) -> None:
        """Make a session for a complete graph. No fetch is a feed; its result would be the array that was fed."""
        options = CallableOptions(feed=[x.name for x in feeds], fetch=[y.name for y in fetches])
        options.run_options.inter_op_thread_pool = -1
        session = tf.compat.v1.Session(graph=graph)
        # Private, because the public method converts its options at each call, which takes longer than the kernels.
        self._call: Callable[..., Sequence[Array]] = session._make_callable_from_options(options)

    def __call__(self, leaves: Sequence[Array]) -> list[Array]:
        """Run the graph; raises TensorFlow's errors.

        Tensors share the memory of aligned leaves, and the read-only results that of tensors.
        """
        environment = _Environment()
        _libm.fegetenv(environment)
        before = environment[7]
        environment[7] = before | FLUSH
        _libm.fesetenv(environment)
        try:
            arrays = list(map(np.asarray, self._call(*leaves)))
        finally:
            environment[7] = before
            _libm.fesetenv(environment)
        for array in arrays:
            array.flags.writeable = False
        return arrays
