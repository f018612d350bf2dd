"""Calls whose results are compared with those of another, to see how far rounding moves them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import tensorflow as tf

from app.autodiff.absent import Absent
from app.autodiff.packing import Shape, Whole
from app.autodiff.point import Errors
from app.autodiff.programs import Program
from app.autodiff.random_errors import dtypes_within, eps_of, is_error
from app.autodiff.random_rounding import RandomRounding
from app.autodiff.unjudged import unjudged
from app.errors import Unprocessable, wrong
from app.runtime import modes
from app.runtime.kernels import CALLS, CHANGES, KERNELS, PYTHON, is_random, nodes_of
from app.runtime.modes import Key, KeyedArrays, Trace, Traceable
from ops import Array, Mode, OpFault

T = TypeVar("T")

# These have no state if the page declares it.
STATELESS = "PyFuncStateless"


class Compared(Whole):
    """The packing of an evaluation with random errors inside: it runs in mode graph, alone."""

    def __init__(
        self, program: Program, mode: Mode, device: str, units: tuple[Shape | None, ...], errors: Errors
    ) -> None:
        """Take what ``Whole`` does, and the errors."""
        super().__init__(program, mode, device, units)
        self.errors = errors

    def run(self, members: Sequence[Sequence[Array]]) -> list[KeyedArrays]:
        """Run the program for each member, with errors in the results of its kernels.

        Raises ``Unprocessable`` if the errors would miss a kernel, or the op rejects them. If they are not needed, the
        program runs without them then: this still shows the error of a narrower dtype.
        """
        try:
            return self._run_off(members)
        except Unprocessable:
            if self.errors.is_needed:
                raise
            return super().run(members)

    def _run_off(self, members: Sequence[Sequence[Array]]) -> list[KeyedArrays]:
        members = [[*leaves, np.array(self.errors.scale), np.array(self.errors.draw)] for leaves in members]
        program = RandomRounding(self.program, units="own, joint" if self.errors.is_joint else "own")
        try:
            if _unseen(self._trace(program, members)):
                program = replace(program, has_tapes=False)
            _require(self.program, _unseen(self._trace(program, members)))
            return modes.run_each(program, self.mode, members, self.device)
        except (tf.errors.InvalidArgumentError, OpFault, ValueError):  # the op itself has run here
            _require(self.program, "rejects numbers that are off by a rounding, or has a branch with a gradient")
            raise

    def _trace(self, program: Traceable, members: Sequence[Sequence[Array]]) -> Trace:
        return modes.trace_of(program, self.mode, members[0], self.device)


def need_no_state(program: Program, leaves: Sequence[Array], device: str) -> None:
    """Raise ``Unprocessable`` if equal calls of a program may differ by more than rounding."""
    _require(program, _state(modes.trace_of(program, "graph", leaves, device)))


def reasons(program: Program, leaves: Sequence[Array], device: str) -> dict[Key, Absent]:
    """Return why results of a program have no estimate, by key; those that have one are left out."""
    return _reasons(modes.trace_of(program, "graph", leaves, device))


def mixes_dtypes(program: Program, leaves: Sequence[Array], device: str) -> bool:
    """Return whether a program has numbers of a narrower float dtype than its own, or constants rounded to one."""
    found, own = _dtypes(modes.trace_of(program, "graph", leaves, device)), tf.as_dtype(program.dtype)
    return any(eps_of(dtype) > eps_of(own) for dtype in found)


def _require(program: Program, why_not: str) -> None:
    if why_not:
        message = f"the digits of op {program.op_name.decode()} are not known: it {why_not}"
        expected = "an op whose kernels have no state, and that calls no function of a saved model"
        raise wrong(("digits",), message, expected=expected, got="true")


def _once(find: Callable[[Trace], T]) -> Callable[[Trace], T]:
    """Return a function that keeps what it finds in each trace."""
    known: WeakKeyDictionary[Trace, T] = WeakKeyDictionary()

    def found(trace: Trace) -> T:
        if trace not in known:
            known[trace] = find(trace)
        return known[trace]

    return found


_reasons = _once(unjudged)
_dtypes = _once(lambda trace: dtypes_within(trace.graph_def))


@_once
def _state(trace: Trace) -> str:
    """Return why equal calls may have different results; "" if they have not."""
    kernels = {str(node.op) for node in nodes_of(trace.graph_def)}
    kernels = {name for name in kernels if name in PYTHON or name.startswith(CHANGES) or is_random(name)} - {STATELESS}
    for operation in trace.graph.get_operations():
        of: Any = operation
        is_known = of.type in KERNELS or of.type in CALLS
        if of.op_def.is_stateful and not is_known and any(y.dtype.is_floating for y in of.outputs):
            kernels.add(of.type)
    return f"has a kernel with a state, {min(kernels)}" if kernels else ""


@_once
def _unseen(trace: Trace) -> str:
    """Return what the op calls as a whole, so that the results of its kernels get no errors; "" if it is nothing."""
    called = [node.op for node in trace.graph_def.node if node.op in CALLS and not is_error(node)]
    return f"calls a function as a whole ({called[0]}), inside of which nothing shows how it rounds" if called else ""
