"""Execution of a program in each mode: eagerly, as a graph function, compiled by XLA, or in a v1 session."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import tensorflow as tf

from app.errors import Postponed
from app.runtime import inlining, kernel_trial, repairs, trace_limits, traces
from app.runtime.calculus import Calculus, Graph, NotVectorized, Tapes, forget_gradients
from app.runtime.cancellation import uninterrupted
from app.runtime.cut_traces import Cut
from app.runtime.functions import SMALL, Bounded, Function, can_run_here, unoptimized
from app.runtime.journal import JOURNAL, Describable
from app.runtime.kernels import is_bounded, nodes_of, refuse_wrong_kernels
from app.runtime.page_state import (
    capture_fault,
    is_capture_fault,
    refusing_new_variables,
    refusing_reads,
    static_shape_fault,
    variable_fault,
)
from app.runtime.residuals import in_use
from app.runtime.source_lines import author_line, keep_author_line
from app.runtime.trace_entry import Call, Reference, XlaSession, call_in, is_compiled
from app.runtime.trace_limits import MOST, MOST_OF_COMPOSITION, Limits, limited
from app.runtime.traces import WhyOver
from ops import Array, Mode, OpFault, Tensor

inlining.install()
repairs.install()
trace_limits.install()

Key: TypeAlias = tuple[str | int, str]
"""The level of a result, and the name of its input or output.

If the level is a string, the result is the shape of a tensor, which is only for checks.
"""
Results: TypeAlias = Mapping[Key, Tensor | None]
KeyedArrays: TypeAlias = dict[Key, Array | None]
"""Results as NumPy arrays, ``None`` for missing derivatives."""


def present(value: Array | None) -> Array:
    """Return the array, which must not be ``None``."""
    assert value is not None
    return value


class Traits(NamedTuple):
    """What the modes must know of a program before they build it.

    Its traces count for ``owner``, an op. ``orders`` is the number of nested pullbacks. ``shapes`` has the sizes of
    each leaf, ``None`` for those that vary, or ``None`` alone if the rank varies. If it ``has_few_shapes``, its leaves
    are padded to a few lengths, so that XLA compiles it a few times at most. ``is_composed``: its op is a graph of ops,
    which anyone may have posted. ``is_optimized``: it runs often enough to pay for TensorFlow's optimisation.
    """

    owner: str
    orders: int
    shapes: tuple[tuple[int | None, ...] | None, ...]
    has_few_shapes: bool
    is_composed: bool
    is_optimized: bool = True


class Traceable(Describable, Protocol):
    """A program that every mode can run: it builds tensors from tensors, and differentiates through a ``Calculus``.

    Programs are hashable, and equal programs share their traces.
    """

    @property
    def reference(self) -> Reference:
        """A weak reference to the program, or to one that it is made of; equal for equal programs."""
        ...

    @property
    def traits(self) -> Traits:
        """What must be known of the program before it is built."""
        ...

    def build(self, calculus: Calculus, leaves: Sequence[Tensor]) -> Results:
        """Return the results for these leaves."""
        ...


P = TypeVar("P", bound=Traceable)


@dataclass(frozen=True)
class Around(Generic[P]):
    """What a program that is made of another has in common with it."""

    program: P

    @property
    def traits(self) -> Traits:
        """Those of the program."""
        return self.program.traits

    @property
    def op_name(self) -> bytes:
        """That of the program."""
        return self.program.op_name

    def describe(self, leaves: Sequence[Array]) -> str:
        """Return these leaves as text."""
        return self.program.describe(leaves)


# The attribute of a program with the modes in which all kernels of its traces end soon.
_BOUNDED = "_bounded_modes"
_TYPE, _TYPE_AND_SHAPE = attrgetter("dtype"), attrgetter("dtype", "shape")


def run(program: Traceable, mode: Mode, leaves: Sequence[Array], device: str) -> KeyedArrays:
    """Run ``program`` on NumPy leaves and return NumPy results, ``None`` for missing derivatives.

    Raises ``NotTraced`` if the mode needs a new trace that this thread must not make, and whatever TensorFlow raises.
    """
    return run_each(program, mode, [leaves], device)[0]


def run_each(program: Traceable, mode: Mode, members: Sequence[Sequence[Array]], device: str) -> list[KeyedArrays]:
    """Return the results of ``run`` for several members, whose leaves have the same shapes.

    Where the residuals of a point are in use, the members differ in their directions alone, and may share a call.
    """
    leaves = members[0]
    JOURNAL.begin(program, mode, leaves)
    try:
        if mode != "eager":
            trace, use = trace_of(program, mode, leaves, device), in_use()
            return list(map(trace, members)) if use is None or mode != "graph" else use.run(trace, members)
        with tf.device(device):
            return [_run_eagerly(program, each) for each in members]
    finally:
        JOURNAL.end()


def trace_of(program: Traceable, mode: Mode, leaves: Sequence[Array], device: str) -> "Trace":
    """Return the trace of a program for leaves like these, made at the first call.

    Raises ``NotTraced`` if this thread must not make it, and whatever the op and TensorFlow raise.
    """
    # A trace serves every shape; XLA compiles for each.
    key = (program.reference, mode, device, *map(_TYPE_AND_SHAPE if mode == "xla" else _TYPE, leaves))
    kept: Trace | None = traces.TRACES.get(key)
    if kept is not None:
        return kept
    traces.require_tracing_allowed(mode)
    traits, in_xla = program.traits, mode == "xla"
    is_permanent = in_xla and traits.has_few_shapes and traces.TRACES.may_be_permanent(traits.owner)

    def make(why_over: WhyOver, session: Callable[[], XlaSession]) -> Trace:
        return _new_trace(program, mode, leaves, device, why_over=why_over, session=session)

    kinds = {"is_compiled": in_xla, "is_permanent": is_permanent, "may_outlive": not traits.is_composed}
    made: Trace = traces.TRACES.make(key, traits.owner, make, **kinds)
    return made


def is_known_bounded(program: Traceable, mode: Mode) -> bool:
    """Report whether all kernels of a program end soon and never wait; false before its first trace in this mode."""
    return mode in vars(program).get(_BOUNDED, ())


# TensorFlow optimises a graph at its first call, for half a second with so many nodes, and nothing can cancel that.
LARGE = 1024


class Trace:
    """The trace of a program: a graph function, or a v1 graph with its session; either may be compiled.

    It has so many ``nodes``. ``kinds`` has the dtype of each result that a call computes, ``shapes`` those that are
    known beforehand, as they are under XLA, and ``missing`` the keys of missing derivatives.
    """

    def __init__(
        self,
        program: Traceable,
        mode: Mode,
        specs: Sequence[tf.TensorSpec],
        device: str,
        session: Callable[[], XlaSession] = XlaSession,
    ) -> None:
        """Trace a program for leaves of these types on a device; raise whatever the op and TensorFlow raise.

        What XLA compiles is compiled in the ``session``.
        """
        self.is_bounded, self.nodes = False, 0
        self.kinds: dict[Key, tf.DType] = {}
        self.shapes: KeyedArrays = {}
        self.missing: list[Key] = []
        self._function: tf.types.experimental.ConcreteFunction | None = None
        self._device = device
        self._cuts: dict[int, Cut] = {}
        if mode == "v1":
            self._call = self._in_session(program, specs, device, session)
        elif mode == "xla":
            self._call = self._in_xla(program, specs, device, session)
        else:
            self._function = self._concrete(program, mode, specs)
            if mode == "graph" and self.is_bounded and program.traits.is_optimized and can_run_here(device):
                self._call = Bounded(self._function, are_bounded=program.traits.has_few_shapes)
            else:
                self._call = Function(self._function)

    def __call__(self, leaves: Sequence[Array]) -> KeyedArrays:
        """Run the program on leaves of the types that it was traced for."""
        values = self._call(leaves) if self.kinds else []
        return {**dict(zip(self.kinds, values, strict=True)), **self.shapes, **dict.fromkeys(self.missing)}

    def cut(self, leaves: int, known: int) -> Cut:
        """Return the trace, which has so many leaves, cut behind what the first ``known`` of them determine."""
        if known not in self._cuts:
            with tf.device(self._device):
                self._cuts[known] = Cut(self, leaves, known)
        return self._cuts[known]

    @property
    def function(self) -> tf.types.experimental.ConcreteFunction:
        """The function; not in mode v1."""
        assert self._function is not None
        return self._function

    @property
    def graph(self) -> tf.Graph:
        """The graph of the function; not in mode v1."""
        return self.function.graph

    @property
    def graph_def(self) -> Any:
        """The graph, with its functions, as TensorFlow's ``GraphDef``; not in mode v1."""
        return self.graph.as_graph_def()

    @cached_property
    def kernels(self) -> frozenset[str]:
        """The types of the operations of the graph and of those that it calls; not in mode v1."""
        return frozenset(node.op for node in nodes_of(self.graph_def))

    def within_graph(self, leaves: Sequence[Tensor]) -> dict[Key, Tensor]:
        """Return the results that are not missing, for tensors of a graph that is being built; not in mode v1."""
        assert self._function is not None
        return dict(zip(self.kinds, self._function(*leaves), strict=True)) if self.kinds else {}

    def _build(self, program: Traceable, *tensors: Tensor) -> list[Tensor]:
        try:
            with refusing_new_variables():
                results = program.build(Graph(), tensors)
        except BaseException:
            forget_gradients(tf.compat.v1.get_default_graph())
            raise
        found = {key: tensor for key, tensor in results.items() if tensor is not None}
        shapes = {key: tf.get_static_value(tensor) for key, tensor in found.items() if isinstance(key[0], str)}
        self.shapes = {key: shape for key, shape in shapes.items() if shape is not None}
        computed = {key: tensor for key, tensor in found.items() if key not in self.shapes}
        self.kinds = {key: tensor.dtype for key, tensor in computed.items()}
        self.missing = [key for key, tensor in results.items() if tensor is None]
        return list(computed.values())

    def _concrete(
        self, program: Traceable, mode: Mode, specs: Sequence[tf.TensorSpec]
    ) -> tf.types.experimental.ConcreteFunction:
        build = partial(self._build, program)
        traced = tf.function(build, input_signature=specs, autograph=False, jit_compile=mode == "xla")
        function = traced.get_concrete_function()
        if (fault := variable_fault(function.graph)) is not None:
            raise fault
        if mode == "xla":
            refuse_wrong_kernels(function.graph.as_graph_def(), program.traits.owner)
        self.is_bounded = is_bounded(function.graph)
        forget_gradients(function.graph)
        return function

    def _in_xla(
        self, program: Traceable, specs: Sequence[tf.TensorSpec], device: str, session: Callable[[], XlaSession]
    ) -> Call:
        """Return a call of the program, which XLA compiles in ``session``."""
        compiled = self._concrete(program, "xla", specs)
        if not self.kinds:
            return lambda leaves: []

        def call_compiled(*leaves: Tensor) -> list[Tensor]:
            with tf.device(device):  # a new graph does not inherit the device around it
                return compiled(*leaves)

        whole = tf.function(call_compiled, input_signature=specs, autograph=False).get_concrete_function()
        if any(tensor.dtype == tf.resource for tensor in whole.captured_inputs):
            raise capture_fault(whole.graph, "xla")
        is_small = program.traits.has_few_shapes or sum(spec.shape.num_elements() or 0 for spec in specs) <= SMALL
        runs_here = self.is_bounded and is_small and can_run_here(device)
        call = session().add(whole.graph, whole.inputs, whole.outputs, runs_here=runs_here)
        captured = [np.asarray(tensor) for tensor in whole.captured_inputs]
        return (lambda leaves: call([*leaves, *captured])) if captured else call

    def _in_session(
        self, program: Traceable, specs: Sequence[tf.TensorSpec], device: str, session: Callable[[], XlaSession]
    ) -> Call:
        """Return a call of the program in a session of its own, or in ``session`` if XLA compiles a part of it."""
        graph = tf.Graph()
        with graph.as_default(), tf.device(device):
            holders = [tf.compat.v1.placeholder(spec.dtype, spec.shape) for spec in specs]
            # Fetching a fed placeholder would return the fed array itself; the identity makes it a result.
            fetches = [tf.identity(tensor) for tensor in self._build(program, *holders)]
        forget_gradients(graph)
        graph.finalize()
        if is_compiled(graph):
            return session().add(graph, holders, fetches, runs_here=False)
        return call_in(tf.compat.v1.Session(graph=graph), holders, fetches)


def _new_trace(
    program: Traceable,
    mode: Mode,
    leaves: Sequence[Array],
    device: str,
    *,
    why_over: WhyOver,
    session: Callable[[], XlaSession],
) -> Trace:
    """Return a new trace for leaves like these; raise the clearest error if tracing or compiling fails.

    Raises ``Unprocessable`` for a trace of too many nodes, and the error of ``why_over`` when it returns one.
    """
    traits = program.traits
    limits = Limits(traits.owner, MOST_OF_COMPOSITION if traits.is_composed else MOST, why_over)
    # The author's code and the compiler may crash.
    options = nullcontext() if traits.is_optimized else unoptimized()
    with JOURNAL.running(program, mode, leaves), uninterrupted(), tf.device(device), options:
        try:
            # Any shape that the leaf may have, or its exact shape for XLA, which compiles for each.
            shapes = [leaf.shape for leaf in leaves] if mode == "xla" else traits.shapes
            specs = [tf.TensorSpec(s, tf.as_dtype(leaf.dtype)) for leaf, s in zip(leaves, shapes, strict=True)]
            with limited(limits):
                trace = Trace(program, mode, specs, device, session)
            if limits.stopped is None and (mode == "xla" or (limits.nodes > LARGE and traits.is_optimized)):
                # The first call compiles, or optimises. Here, because it would hold other work where no trace is made,
                # and because no caller's deadline can cancel it; its result is not used.
                with suppress(*() if mode == "xla" else (tf.errors.OpError,)):  # the next call reports the values
                    trace(leaves)
            if limits.stopped is None and mode == "graph" and limits.nodes <= LARGE:
                kernels = kernel_trial.untried(trace.graph_def)
                eagerly, has_directions = partial(_run_eagerly, program), not traits.has_few_shapes
                kernel_trial.compare(kernels, leaves, trace, eagerly, has_directions=has_directions)
        except Postponed:
            raise
        except BaseException as error:  # noqa: BLE001 - the op author's code may raise anything
            failure = limits.stopped or _clearest_error(error, program, leaves, device)
            keep_author_line(failure)
        else:
            # An op's code may have caught the error: the trace is not whole.
            failure = limits.stopped
            if failure is None:
                trace.nodes = limits.nodes
                if trace.is_bounded:
                    vars(program).setdefault(_BOUNDED, set[Mode]()).add(mode)
                return trace
    # Raised outside the block above; inside it, the first error would become the context and keep the tensors alive.
    raise failure


def _clearest_error(error: BaseException, program: Traceable, leaves: Sequence[Array], device: str) -> BaseException:
    """Return the ``OpFault`` that eager mode raises, where every shape is known, or else the error of the trace.

    For example, if a gradient function returns the Python int 0, the graph's error does not name the function. What a
    graph cannot read from outside, a graph function names. An op that runs eagerly may have asked for a static shape.
    """
    if isinstance(error, NotVectorized):
        return error
    explanation = error
    try:
        if is_capture_fault(error):
            specs = [tf.TensorSpec(leaf.shape, tf.as_dtype(leaf.dtype)) for leaf in leaves]
            with tf.device(device):
                graph = Trace(program, "graph", specs, device).graph
            explanation = capture_fault(graph, "v1", author_line(error))
        else:
            _run_eagerly(program, leaves)
            explanation = static_shape_fault(error) or error
    except OpFault as fault:
        explanation = fault
    except Postponed:
        raise
    except BaseException as other:  # noqa: BLE001 - the op author's code may raise anything
        # Any other error of eager mode explains no more than the error of the trace.
        explanation = other if is_capture_fault(error) else error
    # It is kept with the failed trace; its context would keep the tensors of this request alive.
    explanation.__context__ = None
    return explanation


def _run_eagerly(program: Traceable, leaves: Sequence[Array]) -> KeyedArrays:
    with Tapes(program.traits.orders) as tapes, refusing_new_variables(), refusing_reads():
        results = program.build(tapes, [tf.constant(leaf) for leaf in leaves])
        return {key: None if tensor is None else tensor.numpy() for key, tensor in results.items()}
