"""How a program is run: eagerly, as a graph function, compiled by XLA, or in a v1 graph with a session."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeAlias

import numpy as np
import tensorflow as tf

# Private, for the public way of calling functions and making tensors takes several times as long as the work itself.
from tensorflow.python.eager import context
from tensorflow.python.framework.ops import EagerTensor  # for the same reason

from app.errors import Overloaded
from app.runtime import traces
from app.runtime.arithmetic import is_arithmetic
from app.runtime.calculus import Calculus, Graph, Tapes
from app.runtime.cancellation import remaining_ms, uninterrupted
from ops import Array, Mode, OpFault, Tensor

Key: TypeAlias = tuple[str | int, str]
"""What a result is, and the name that it belongs to."""
Results: TypeAlias = Mapping[Key, Tensor | None]
KeyedArrays: TypeAlias = dict[Key, Array | None]
"""Results as NumPy arrays, ``None`` where no derivative exists."""


class Traceable(Protocol):
    """What can be run in every mode: it builds tensors from tensors, and takes derivatives through a ``Calculus``.

    Equal ones share their traces, so it must be hashable.
    """

    @property
    def owner(self) -> str:
        """The op's name: its budget pays for the traces."""
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
        """Whether the eager answer is the graph's answer, whoever wrote the op."""
        ...

    def build(self, calculus: Calculus, leaves: Sequence[Tensor]) -> Results:
        """Compute the results of the leaves."""
        ...


def run(program: Traceable, mode: Mode, leaves: Sequence[Array], device: str) -> KeyedArrays:
    """Run ``program`` on NumPy leaves and return NumPy results, ``None`` where no derivative exists.

    Raises ``Overloaded`` when the mode needs a new trace and the budget is spent, and whatever TensorFlow raises.
    """
    with tf.device(device):
        if mode == "eager":
            return _run_eagerly(program, leaves)
        # Any shape will do for a trace, except for XLA, which compiles for each.
        kinds = [(leaf.dtype, leaf.shape) if mode == "xla" else leaf.dtype for leaf in leaves]
        key = (program, mode, device, *kinds)
        trace: Trace | None = traces.TRACES.kept.get(key)
        if trace is not None:
            return trace(leaves)
        try:
            make = partial(_traced, program, mode, leaves, device)
            made: Trace = traces.TRACES.make(key, program.owner, make, is_compiled=mode == "xla")
            return made(leaves)
        except traces.BudgetSpent as spent:
            if mode == "graph" and program.runs_eagerly:
                return _run_eagerly(program, leaves)
            raise Overloaded(f"{spent}; use mode eager, or restart the service", retry_after_s=60) from None


def is_known_arithmetic(program: Traceable, mode: Mode) -> bool:
    """Return whether a program, which must have been run in this mode, does nothing but arithmetic."""
    return (program, mode) in _arithmetic


_arithmetic: set[tuple[Traceable, Mode]] = set()


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
            self.is_arithmetic = is_arithmetic(concrete.graph)
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


def _traced(program: Traceable, mode: Mode, leaves: Sequence[Array], device: str) -> Trace:
    """Return a new trace for leaves like these; raises the plainest error that explains why there is none."""
    with uninterrupted():
        try:
            specs = [_spec(leaf, rank, mode) for leaf, rank in zip(leaves, program.ranks, strict=True)]
            trace = Trace(program, mode, specs, device)
        except BaseException as error:  # noqa: BLE001 - an author's code runs here, and may raise anything
            failure = _plainest(error, program, leaves)
        else:
            if trace.is_arithmetic:
                _arithmetic.add((program, mode))
            return trace
    # Outside the block above, or the error would refer to the first one, and with it to the tensors of this request.
    raise failure


def _plainest(error: BaseException, program: Traceable, leaves: Sequence[Array]) -> BaseException:
    """Return why a trace failed: the op's fault as eager mode reports it, which has every shape.

    A gradient function that returns the Python int 0 fails in a graph without a word about which function it is.
    """
    with suppress(BaseException):  # the error of the trace is as good as any other
        try:
            _run_eagerly(program, leaves)
        except OpFault as fault:
            # It is kept, and the error that it came after would keep the tensors of this request.
            fault.__context__ = None
            return fault
    return error


def _spec(leaf: Array, rank: int | None, mode: Mode) -> tf.TensorSpec:
    """Return the signature of a leaf: any shape of its rank, or for XLA, which compiles for each anyway, its shape."""
    shape = leaf.shape if mode == "xla" else None if rank is None else [None] * rank
    return tf.TensorSpec(shape, tf.as_dtype(leaf.dtype))


def _run_eagerly(program: Traceable, leaves: Sequence[Array]) -> KeyedArrays:
    with Tapes(program.orders) as tapes:
        results = program.build(tapes, [tf.constant(leaf) for leaf in leaves])
        return {key: None if tensor is None else tensor.numpy() for key, tensor in results.items()}
