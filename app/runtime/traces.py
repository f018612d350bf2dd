"""Traces: programs as graph functions, compiled by XLA or not, and as v1 sessions; and the budget for them.

A trace is made once for a program, dtypes and device, whatever the shapes (with XLA: once a shape), and kept for the
life of the process: TensorFlow does not give its memory back. So there is a budget of them.
"""

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

import numpy as np
import tensorflow as tf

# Private, for the public way of calling functions and making tensors takes several times as long as the work itself.
from tensorflow.python.eager import context
from tensorflow.python.framework.ops import EagerTensor  # for the same reason

from app.runtime import arithmetic
from app.runtime.calculus import Graph
from app.runtime.cancellation import remaining_ms, uninterrupted
from app.runtime.eager import Key, KeyedArrays, Traceable, run_eagerly
from ops import Array, Mode, OpFault, Tensor

# A trace keeps about 0.25 MB for ever, one that XLA compiles 0.5 to 2 MB.
TRACE_BUDGET = 2048
XLA_BUDGET = 640
# The part of it that one op may spend, so that the callers of one op do not spend all of it.
SHARE = 0.5


class BudgetSpent(Exception):
    """No further trace may be made."""


class Function:
    """A concrete function, called on NumPy arrays without the layers that check arguments and look for tapes."""

    def __init__(self, function: tf.types.experimental.ConcreteFunction) -> None:
        """Keep the function: the runtime's own function lives as long as it does."""
        self._function = function
        self._name, self._captured, self._count = function.name, list(function.captured_inputs), len(function.outputs)

    def __call__(self, leaves: Sequence[Array]) -> list[Array]:
        """Call it. Tensors share the memory of aligned leaves, and results, which are read-only, that of tensors."""
        now = context.context()
        tensors = [EagerTensor(leaf, now.device_name, None) for leaf in leaves]
        found = now.call_function(self._name, [*tensors, *self._captured], self._count) or ()
        arrays = [np.asarray(tensor._numpy()) for tensor in found]
        for array in arrays:
            array.flags.writeable = False
        return arrays


class Trace:
    """A program, traced: a graph function (compiled or not), or a v1 graph with its session."""

    def __init__(self, program: Traceable, mode: Mode, specs: Sequence[tf.TensorSpec], device: str) -> None:
        """Trace a program for leaves of these types on a device; raises what the op and TensorFlow raise."""
        self.is_arithmetic = False
        self._keys: list[Key] = []
        self._missing: list[Key] = []
        if mode == "v1":
            self._call = self._session(program, specs, device)
        else:
            build = partial(self._build, program)
            function = tf.function(build, input_signature=specs, autograph=False, jit_compile=mode == "xla")
            concrete = function.get_concrete_function()
            self.is_arithmetic = arithmetic.is_arithmetic(concrete.graph)
            self._call = Function(concrete)

    def __call__(self, leaves: Sequence[Array]) -> KeyedArrays:
        """Run it on leaves of these types."""
        values = self._call(leaves) if self._keys else []
        return {**dict(zip(self._keys, values, strict=True)), **dict.fromkeys(self._missing)}

    def _build(self, program: Traceable, *tensors: Tensor) -> list[Tensor]:
        results = program.build(Graph(), tensors)
        self._keys = [key for key, tensor in results.items() if tensor is not None]
        self._missing = [key for key, tensor in results.items() if tensor is None]
        return [tensor for tensor in results.values() if tensor is not None]

    def _session(
        self, program: Traceable, specs: Sequence[tf.TensorSpec], device: str
    ) -> Callable[[Sequence[Array]], list[Array]]:
        graph = tf.Graph()
        with graph.as_default(), tf.device(device):  # a new graph does not inherit the device around it
            holders = [tf.compat.v1.placeholder(spec.dtype, spec.shape) for spec in specs]
            # A fetch that is fed would return the fed array itself: the identity makes it a result.
            fetches = [tf.identity(tensor) for tensor in self._build(program, *holders)]
        graph.finalize()
        session = tf.compat.v1.Session(graph=graph)
        call = session.make_callable(fetches, feed_list=holders, accept_options=True)
        return lambda leaves: call(*leaves, options=tf.compat.v1.RunOptions(timeout_in_ms=remaining_ms()))


class Traces:
    """Every trace of the process, and its budgets. A trace that failed is kept as its error: it leaks as well.

    ``spent`` counts how often a budget was used up, an op's share or all of it.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._traces: dict[Hashable, Future[Trace]] = {}
        self._arithmetic: set[tuple[Traceable, Mode]] = set()
        self.made: Counter[str] = Counter()
        self.compiled: Counter[str] = Counter()
        self.spent = 0

    def get(self, program: Traceable, mode: Mode, leaves: Sequence[Array], device: str) -> Trace:
        """Return the trace for leaves like these, made now if there is none.

        Raises ``BudgetSpent``, and what tracing it raised the first time.
        """
        # Any shape will do for a trace, except for XLA, which compiles for each.
        kinds = [(leaf.dtype, leaf.shape) if mode == "xla" else leaf.dtype for leaf in leaves]
        key = (program, mode, device, *kinds)
        with self._lock:
            future = self._traces.get(key)
            made = future is not None
            if future is None:
                self._spend(program.owner, mode)
                future = self._traces[key] = Future()
        if not made:
            with uninterrupted():
                try:
                    specs = [_spec(leaf, rank, mode) for leaf, rank in zip(leaves, program.ranks, strict=True)]
                    future.set_result(trace := Trace(program, mode, specs, device))
                    if trace.is_arithmetic:
                        self._arithmetic.add((program, mode))
                except BaseException as error:  # noqa: BLE001 - an author's code runs here, and may raise anything
                    future.set_exception(_plainest(error, program, leaves))
        return future.result()

    def is_arithmetic(self, program: Traceable, mode: Mode) -> bool:
        """Return whether a program, which must have been traced in this mode, does nothing but arithmetic."""
        return (program, mode) in self._arithmetic

    def may_compile(self, owner: str) -> bool:
        """Return whether XLA may compile once more for an op."""
        return not (_is_spent(self.compiled, XLA_BUDGET, owner) or _is_spent(self.made, TRACE_BUDGET, owner))

    def _spend(self, owner: str, mode: Mode) -> None:
        """Count a trace, or refuse it: neither all ops together nor one of them may have more than their share."""
        _check(self.made, TRACE_BUDGET, owner, "traces")
        if mode == "xla":
            _check(self.compiled, XLA_BUDGET, owner, "XLA compilations")
            self.compiled[owner] += 1
        self.made[owner] += 1
        if not self.may_compile(owner):
            self.spent += 1


TRACES = Traces()
"""The traces of this process."""


def trace_counts() -> tuple[int, int]:
    """Return how many traces this process has made, and how many of them XLA has compiled."""
    return TRACES.made.total(), TRACES.compiled.total()


def _is_spent(spent: Counter[str], budget: int, owner: str) -> bool:
    return spent[owner] >= budget * SHARE or spent.total() >= budget


def _check(spent: Counter[str], budget: int, owner: str, what: str) -> None:
    if _is_spent(spent, budget, owner):
        raise BudgetSpent(f"op {owner} has no {what} left in this process")


def _plainest(error: BaseException, program: Traceable, leaves: Sequence[Array]) -> BaseException:
    """Return why a trace failed: the op's fault as eager mode reports it, which has every shape.

    A gradient function that returns the Python int 0 fails in a graph without a word about which function it is.
    """
    with suppress(BaseException):  # the error of the trace is as good as any other
        try:
            run_eagerly(program, leaves)
        except OpFault as fault:
            # It is kept, and the error that it came after would keep the tensors of this request.
            fault.__context__ = None
            return fault
    return error


def _spec(leaf: Array, rank: int | None, mode: Mode) -> tf.TensorSpec:
    """Return the signature of a leaf: any shape of its rank, or for XLA, which compiles for each anyway, its shape."""
    shape = leaf.shape if mode == "xla" else None if rank is None else [None] * rank
    return tf.TensorSpec(shape, tf.as_dtype(leaf.dtype))
