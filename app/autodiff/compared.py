"""Calls whose results are compared with those of another, to see how far rounding moves them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeGuard
from weakref import WeakKeyDictionary

import numpy as np
import tensorflow as tf

from app.autodiff.packing import Shape, Whole
from app.autodiff.point import Errors
from app.autodiff.programs import Program
from app.autodiff.random_rounding import RandomRounding
from app.errors import wrong
from app.runtime import modes
from app.runtime.kernels import CALLS, CHANGES, KERNELS, is_random, nodes_of
from app.runtime.modes import KeyedArrays, Trace, Traceable
from ops import Array, Mode, OpFault

# The kernels of tf.numpy_function and tf.py_function, unless the page declares that they have no state.
PYTHON = frozenset(["EagerPyFunc", "PyFunc"])


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

        Raises ``Unprocessable`` if the errors would miss a kernel.
        """
        members = [[*leaves, np.array(self.errors.scale), np.array(self.errors.draw)] for leaves in members]
        program = RandomRounding(self.program)
        if _unseen(self._trace(program, members)):
            program = replace(program, has_tapes=False)
        _require(self.program, _unseen(self._trace(program, members)))
        try:
            return modes.run_each(program, self.mode, members, self.device)
        except (tf.errors.InvalidArgumentError, OpFault):  # the op itself has run here
            _require(self.program, "rejects numbers that are off by a rounding, or has a branch with a gradient")
            raise

    def _trace(self, program: Traceable, members: Sequence[Sequence[Array]]) -> Trace:
        return modes.trace_of(program, self.mode, members[0], self.device)


def is_off(errors: Errors | None) -> TypeGuard[Errors]:
    """Return whether evaluations run with errors inside: without, a wider dtype shows those of a narrower one."""
    return errors is not None and errors.scale > 0


def need_no_state(program: Program, leaves: Sequence[Array], device: str) -> None:
    """Raise ``Unprocessable`` if equal calls of a program may differ by more than rounding."""
    _require(program, _state(modes.trace_of(program, "graph", leaves, device)))


def _require(program: Program, why_not: str) -> None:
    if why_not:
        message = f"the digits of op {program.op_name.decode()} are not known: it {why_not}"
        expected = "an op whose kernels have no state, and that calls no function of a saved model"
        raise wrong(("digits",), message, expected=expected, got="true")


def _once(find: Callable[[Trace], str]) -> Callable[[Trace], str]:
    """Return a function that keeps what it finds in each trace."""
    known: WeakKeyDictionary[Trace, str] = WeakKeyDictionary()

    def found(trace: Trace) -> str:
        if trace not in known:
            known[trace] = find(trace)
        return known[trace]

    return found


@_once
def _state(trace: Trace) -> str:
    """Return why equal calls may have different results; "" if they have not."""
    kernels = {str(node.op) for node in nodes_of(trace.graph_def)}
    kernels = {name for name in kernels if name in PYTHON or name.startswith(CHANGES) or is_random(name)}
    for operation in trace.graph.get_operations():
        of: Any = operation
        is_known = of.type in KERNELS or of.type in CALLS
        if of.op_def.is_stateful and not is_known and any(y.dtype.is_floating for y in of.outputs):
            kernels.add(of.type)
    return f"has a kernel with a state, {min(kernels)}" if kernels else ""


@_once
def _unseen(trace: Trace) -> str:
    """Return what the op calls as a whole, so that the results of its kernels get no errors; "" if it is nothing."""
    called = [node.op for node in trace.graph_def.node if node.op in CALLS]
    return f"calls a function as a whole ({called[0]}), inside of which nothing shows how it rounds" if called else ""
