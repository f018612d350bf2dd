"""Calls of concrete functions on NumPy arrays, without the layers that check arguments and search for tapes."""

import ctypes
import platform
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import chain, repeat
from typing import Any, cast

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.config_pb2 import CallableOptions
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig

# Private, because the public API for calling functions and creating tensors takes several times as long as the work.
from tensorflow.python.eager import cancellation, context, core
from tensorflow.python.framework.ops import EagerTensor  # for the same reason
from tensorflow.python.pywrap_tfe import TFE_Py_Execute, TFE_Py_ExecuteCancelable  # for the same reason

from ops import Array, Tensor
from pullback.ops._mechanisms import INLINED

# TensorFlow's own threads take subnormal numbers for zero, and write zero for them. The calling thread must do the same
# during a call, for equal bits: two bits of its register MXCSR, the last word that fegetenv stores.
FLUSH = 1 << 15 | 1 << 6
_Environment = ctypes.c_uint32 * 8
# PyDLL does not release the interpreter's lock, which would take longer than both functions.
_libm = ctypes.PyDLL("libm.so.6")


# TensorFlow runs a function on its own threads, and the caller waits: for small tensors, that takes several times as
# long as the kernels. A session can run its graph on the calling thread, but then nothing can cancel it.
def can_run_here(device: str) -> bool:
    """Report whether a graph on this device gives the same bits on the calling thread as on TensorFlow's threads."""
    return "CPU" in device and platform.machine() == "x86_64"


class OnThisThread:
    """A graph as a function from NumPy arrays to NumPy arrays; it runs on the CPU, on the thread that calls it."""

    def __init__(self, session: tf.compat.v1.Session, feeds: Sequence[Tensor], fetches: Sequence[Tensor]) -> None:
        """Call a part of a session's graph. No fetch is a feed; its result would be the array that was fed."""
        options = CallableOptions(feed=[x.name for x in feeds], fetch=[y.name for y in fetches])
        options.run_options.inter_op_thread_pool = -1
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


def _options(**rewriting: Any) -> context.FunctionCallOptions:
    graph_options = tf.compat.v1.GraphOptions(rewrite_options=RewriterConfig(**rewriting))
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True, graph_options=graph_options)
    return context.FunctionCallOptions(config_proto=config)


_UNOPTIMIZED, _INLINED = _options(disable_meta_optimizer=True), _options(optimizers=["function"])


@contextmanager
def unoptimized() -> Generator[None]:
    """Inside this block, this thread makes functions whose graphs TensorFlow does not optimise at the first call."""
    now = context.context()
    before, now.function_call_options = now.function_call_options, _UNOPTIMIZED
    try:
        yield
    finally:
        now.function_call_options = before


class Function:
    """A concrete function, called on NumPy arrays without the layers that check arguments and search for tapes."""

    def __init__(self, function: tf.types.experimental.ConcreteFunction) -> None:
        """Keep a reference to the function, because the runtime drops its own when the function is deleted.

        It runs on the device of the scope around this call.
        """
        self._function, now = function, context.context()
        self._name, self._captured = function.name.decode(), list(function.captured_inputs)
        self._count, self._device = len(function.outputs), now.device_name
        options, graph = now.function_call_options, cast(Any, function.graph)
        if options is _UNOPTIMIZED and graph.get_collection(INLINED):
            options = _INLINED
        self._attrs = tuple(chain.from_iterable(options.as_attrs().items()))

    def __call__(self, leaves: Sequence[Array]) -> list[Array]:
        """Call the function. Tensors share the memory of aligned leaves, and the read-only results that of tensors."""
        return list(map(array_of, self.on_device(self.tensors_of(leaves))))

    def tensors_of(self, leaves: Sequence[Array]) -> list[EagerTensor]:
        """Return leaves as tensors on the function's device."""
        return list(map(EagerTensor, leaves, repeat(self._device), repeat(None)))

    def on_device(self, tensors: Sequence[EagerTensor]) -> Sequence[EagerTensor]:
        """Call the function on tensors of its device, where its results stay."""
        handle, device, manager = context.context()._handle, self._device, cancellation.context()
        tensors = [*tensors, *self._captured]
        try:
            if manager is None:
                return TFE_Py_Execute(handle, device, self._name, tensors, self._attrs, self._count)
            return TFE_Py_ExecuteCancelable(
                handle, device, self._name, tensors, self._attrs, manager._impl, self._count
            )
        except core._NotOkStatusException as error:  # pyright: ignore[reportPrivateUsage] - it has no public name
            raise core._status_to_exception(error) from None  # pyright: ignore[reportPrivateUsage] - the same


def array_of(tensor: EagerTensor) -> Array:
    """Return a tensor as a read-only array, which shares its memory on the CPU."""
    array = np.asarray(tensor._numpy())
    array.flags.writeable = False
    return array


# The most numbers in the leaves of a call that cannot be cancelled.
SMALL = 1 << 14


class Bounded:
    """A function whose kernels end soon and never wait; for small leaves, it runs on the calling thread.

    Leaves of equal shapes always run in the same way, and all leaves do if their sizes ``are_bounded``.
    """

    def __init__(self, function: tf.types.experimental.ConcreteFunction, *, are_bounded: bool) -> None:
        """Make the call for large leaves; the other is made when it is needed."""
        self._for_large, self._function, self._are_bounded = Function(function), function, are_bounded
        self._captured = [np.asarray(tensor) for tensor in function.captured_inputs]

    @cached_property
    def _for_small(self) -> OnThisThread:
        session = tf.compat.v1.Session(graph=self._function.graph)
        return OnThisThread(session, self._function.inputs, self._function.outputs)

    def __call__(self, leaves: Sequence[Array]) -> list[Array]:
        """Call the function."""
        size = 0
        for leaf in leaves:
            size += leaf.size
        if size <= SMALL or self._are_bounded:
            with suppress(tf.errors.OpError):  # the other call reports it
                return self._for_small([*leaves, *self._captured])
        return self._for_large(leaves)
