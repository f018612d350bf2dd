"""How one program is run: eagerly, as a graph function, compiled by XLA, or in a v1 graph with a session.

A trace is made once for a program, dtypes and device, whatever the shapes (with XLA: once a shape), and kept for the
life of the process: TensorFlow does not give its memory back. So there is a budget of them, and past it work runs
eagerly or is refused.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Protocol, Self, TypeAlias

import tensorflow as tf

# Private, for there is no public way to cancel an eager call or a graph function between two of its kernels.
from tensorflow.python.eager import cancellation

from app.errors import Overloaded
from app.runtime.arithmetic import is_arithmetic
from app.runtime.calculus import Calculus, Graph, Tapes
from app.runtime.function import Function
from ops import Array, Mode, OpFault, Tensor

Key: TypeAlias = tuple[str | int, str]
"""What a result is, and the name that it belongs to."""
Results: TypeAlias = Mapping[Key, Tensor | None]

# A trace keeps about 0.25 MB for ever, one that XLA compiles 0.5 to 2 MB.
TRACE_BUDGET = 2048
XLA_BUDGET = 640
# What of it one op may spend, so that one op's callers do not spend everybody's.
SHARE = 0.5


class Program(Protocol):
    """What can be run in every mode: it builds tensors from tensors, and takes derivatives through a ``Calculus``.

    Equal programs share their traces, so a program must be hashable.
    """

    @property
    def owner(self) -> str:
        """Whose budget its traces are taken from: the op's name."""
        ...

    @property
    def orders(self) -> int:
        """How many pullbacks are nested in it."""
        ...

    @property
    def ranks(self) -> tuple[int | None, ...]:
        """The rank of each leaf, ``None`` where it varies."""
        ...

    @property
    def runs_eagerly(self) -> bool:
        """Tell whether the eager answer is the graph's answer, whoever wrote the op."""
        ...

    def build(self, calculus: Calculus, leaves: Sequence[Tensor]) -> Results:
        """Compute the results of the leaves."""
        ...


class Interruptible:
    """A block of work on this thread that another thread can cancel, between one kernel and the next.

    A kernel, a trace or an XLA program that runs goes on to its end. A v1 session stops by itself at ``deadline``, a
    time of ``time.monotonic``.
    """

    def __init__(self, deadline: float) -> None:
        """Prepare to be cancelled."""
        self.deadline = deadline
        self._manager = cancellation.CancellationManager()
        self._cancelled = False

    @property
    def manager(self) -> cancellation.CancellationManager:
        """What cancels the next function: a new one where TensorFlow cancelled it itself, as it does when one fails."""
        if self._manager.is_cancelled and not self._cancelled:
            self._manager = cancellation.CancellationManager()
            if self._cancelled:  # meanwhile, on the other thread
                self._manager.start_cancel()
        return self._manager

    def __enter__(self) -> Self:
        """Make this thread's work cancellable."""
        _thread.block = self
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        """Leave the block."""
        _thread.block = None

    def cancel(self) -> None:
        """Cancel what runs, and all that starts later in the block."""
        self._cancelled = True
        self._manager.start_cancel()


class _Thread(threading.local):
    """What the work on a thread must keep to."""

    block: Interruptible | None = None

    def remaining_ms(self) -> int:
        """Return the milliseconds to the deadline, at least 1; 0, which is no limit to a session, without one."""
        return 0 if self.block is None else max(1, int(1000 * (self.block.deadline - time.monotonic())))


_thread = _Thread()


@contextmanager
def _uninterrupted() -> Generator[None]:
    """Let nobody cancel what this block does: a trace that is kept must not be kept as one caller's impatience."""
    block, _thread.block = _thread.block, None
    try:
        yield
    finally:
        _thread.block = block


def _manager() -> cancellation.CancellationManager | None:
    return _thread.block and _thread.block.manager


# TensorFlow keeps one manager for all threads: the work of one slot would be cancelled with that of the other.
cancellation.context = _manager


def may_compile(owner: str) -> bool:
    """Tell whether an op may have XLA compile once more for it."""
    return _traces.may_compile(owner)


def run(program: Program, mode: Mode, leaves: Sequence[Array], device: str) -> dict[Key, Array | None]:
    """Run ``program`` on NumPy leaves and return NumPy results, ``None`` where no derivative exists.

    Raises ``Overloaded`` when the mode needs a new trace and the budget is spent, and whatever TensorFlow raises.
    """
    with tf.device(device):
        if mode == "eager":
            return _run_eagerly(program, leaves)
        try:
            return _traces.get(program, mode, leaves, device)(leaves)
        except _BudgetSpent as spent:
            if mode == "graph" and program.runs_eagerly:
                return _run_eagerly(program, leaves)
            raise Overloaded(f"{spent}; use mode eager, or restart the service", retry_after_s=60) from None


def _plainest(error: BaseException, program: Program, leaves: Sequence[Array]) -> BaseException:
    """Return why a trace failed: the op's fault as eager mode sees it, which knows every shape.

    A gradient function that returns the Python int 0 fails in a graph without a word on which one it is.
    """
    with suppress(BaseException):  # what the trace said is as good as whatever else comes
        try:
            _run_eagerly(program, leaves)
        except OpFault as fault:
            # It is kept, and the error that it came after would keep the tensors of this request.
            fault.__context__ = None
            return fault
    return error


def _run_eagerly(program: Program, leaves: Sequence[Array]) -> dict[Key, Array | None]:
    with Tapes(program.orders) as tapes:
        results = program.build(tapes, [tf.constant(leaf) for leaf in leaves])
        return {key: None if tensor is None else tensor.numpy() for key, tensor in results.items()}


class _BudgetSpent(Exception):
    """No further trace may be made."""


class _Trace:
    """A program, traced: a graph function (compiled or not), or a v1 graph with its session."""

    def __init__(self, program: Program, mode: Mode, specs: Sequence[tf.TensorSpec], device: str) -> None:
        self.is_arithmetic = False
        self._keys: list[Key] = []
        self._missing: list[Key] = []
        if mode == "v1":
            self._call = self._session(program, specs, device)
        else:
            build = partial(self._build, program)
            function = tf.function(build, input_signature=specs, autograph=False, jit_compile=mode == "xla")
            concrete = function.get_concrete_function()
            self.is_arithmetic = is_arithmetic(concrete.graph)
            self._call = Function(concrete)

    def _build(self, program: Program, *tensors: Tensor) -> list[Tensor]:
        results = program.build(Graph(), tensors)
        self._keys = [key for key, tensor in results.items() if tensor is not None]
        self._missing = [key for key, tensor in results.items() if tensor is None]
        return [tensor for tensor in results.values() if tensor is not None]

    def _session(
        self, program: Program, specs: Sequence[tf.TensorSpec], device: str
    ) -> Callable[[Sequence[Array]], list[Array]]:
        graph = tf.Graph()
        with graph.as_default(), tf.device(device):  # a new graph does not inherit the device around it
            holders = [tf.compat.v1.placeholder(spec.dtype, spec.shape) for spec in specs]
            # A fetch that is fed would come back as the fed array itself: the identity makes it a result.
            fetches = [tf.identity(tensor) for tensor in self._build(program, *holders)]
        graph.finalize()
        session = tf.compat.v1.Session(graph=graph)
        return partial(_call_session, session.make_callable(fetches, feed_list=holders, accept_options=True))

    def __call__(self, leaves: Sequence[Array]) -> dict[Key, Array | None]:
        values = self._call(leaves) if self._keys else []
        return {**dict(zip(self._keys, values, strict=True)), **dict.fromkeys(self._missing)}


class _Traces:
    """Every trace of the process, and its budgets. A trace that failed is kept as its error: it leaks as well."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._traces: dict[Hashable, Future[_Trace]] = {}
        self._plain: set[tuple[Program, Mode]] = set()
        self.made: Counter[str] = Counter()
        self.compiled: Counter[str] = Counter()

    def get(self, program: Program, mode: Mode, leaves: Sequence[Array], device: str) -> _Trace:
        # Any shape will do for a trace, but for XLA, which compiles for each.
        kinds = tuple((leaf.dtype, leaf.shape) if mode == "xla" else leaf.dtype for leaf in leaves)
        key = (program, mode, device, kinds)
        with self._lock:
            future = self._traces.get(key)
            made = future is not None
            if future is None:
                self._spend(program.owner, mode)
                future = self._traces[key] = Future()
        if not made:
            with _uninterrupted():
                try:
                    specs = [_spec(leaf, rank, mode) for leaf, rank in zip(leaves, program.ranks, strict=True)]
                    future.set_result(trace := _Trace(program, mode, specs, device))
                    if trace.is_arithmetic:
                        self._plain.add((program, mode))
                except BaseException as error:  # noqa: BLE001 - an author's code runs here, and may raise anything
                    future.set_exception(_plainest(error, program, leaves))
        return future.result()

    def does_arithmetic(self, program: Program, mode: Mode) -> bool:
        return (program, mode) in self._plain

    def may_compile(self, owner: str) -> bool:
        return not (_is_spent(self.compiled, XLA_BUDGET, owner) or _is_spent(self.made, TRACE_BUDGET, owner))

    def _spend(self, owner: str, mode: Mode) -> None:
        """Count a trace, or refuse it: neither all ops together nor one of them may have more than their share."""
        _check(self.made, TRACE_BUDGET, owner, "traces")
        if mode == "xla":
            _check(self.compiled, XLA_BUDGET, owner, "XLA compilations")
            self.compiled[owner] += 1
        self.made[owner] += 1


def _is_spent(spent: Counter[str], budget: int, owner: str) -> bool:
    return spent[owner] >= budget * SHARE or spent.total() >= budget


def _check(spent: Counter[str], budget: int, owner: str, what: str) -> None:
    if _is_spent(spent, budget, owner):
        raise _BudgetSpent(f"op {owner} has no {what} left in this process")


_traces = _Traces()


def does_arithmetic(program: Program, mode: Mode) -> bool:
    """Tell whether a program, which must have been run in this mode, does arithmetic and nothing else."""
    return _traces.does_arithmetic(program, mode)


def trace_counts() -> tuple[int, int]:
    """Return how many traces this process has made, and how many of them XLA has compiled."""
    return _traces.made.total(), _traces.compiled.total()


def _spec(leaf: Array, rank: int | None, mode: Mode) -> tf.TensorSpec:
    """Return the signature of a leaf: any shape of its rank, or for XLA, which compiles for each anyway, its shape."""
    shape = leaf.shape if mode == "xla" else None if rank is None else [None] * rank
    return tf.TensorSpec(shape, tf.as_dtype(leaf.dtype))


def _call_session(call: Callable[..., list[Array]], leaves: Sequence[Array]) -> list[Array]:
    return call(*leaves, options=tf.compat.v1.RunOptions(timeout_in_ms=_thread.remaining_ms()))
