"""Points: where an op is evaluated and differentiated, as the request's spec and its input tensors."""

import logging
import math
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from app.errors import MAX_TEXT, Entry, OpFailed, Postponed, PullbackError, clip, wrong
from app.runtime.messages import text_of, without_paths
from app.runtime.source_lines import author_line
from app.tensors.casting import narrow
from app.tensors.dtypes import DTYPES
from ops import (
    COMPLEX_OF,
    NO_PARAMETERS,
    Array,
    Attrs,
    Batching,
    Input,
    InvalidInput,
    Mode,
    Op,
    Output,
    ParameterSet,
)

Arrays: TypeAlias = Mapping[str, Array]
Dims: TypeAlias = Mapping[str, int | tuple[int, ...]]

log = logging.getLogger("pullback")

# The modes that pad programs, so that evaluations can share a call.
PADDED_MODES: tuple[Mode, ...] = ("graph", "xla")
# Multiply-adds of one forward pass: about half a minute on two cores.
MAX_COST = 1 << 38


@dataclass(frozen=True)
class Side:
    """The inputs of an op, or its outputs, when its type variable is ``dtype``.

    ``dtypes`` has the dtype of each slot, in the op's order; ``differentiable`` names the differentiable slots,
    ``absent`` those that the op lacks because an optional input is not sent, and ``pairs`` those of complex numbers,
    whose arrays have pairs of real ones.
    """

    dtype: str
    dtypes: Mapping[str, str]
    differentiable: tuple[str, ...]
    absent: tuple[str, ...] = ()
    pairs: frozenset[str] = frozenset()

    @cached_property
    def shown(self) -> Mapping[str, str]:
        """The dtype of the numbers of each slot, as requests and answers name it."""
        if not self.pairs:
            return self.dtypes
        return {name: COMPLEX_OF[dtype] if name in self.pairs else dtype for name, dtype in self.dtypes.items()}

    def shown_shape(self, name: str, shape: Sequence[int]) -> list[int]:
        """Return the shape of the numbers of a slot, without the axis of pairs."""
        return [*shape][: len(shape) - (name in self.pairs)]

    def numbers(self, name: str, x: Array) -> Array:
        """Return an array of a slot, or of a derivative like it, as its numbers: complex ones in place of pairs."""
        return as_numbers(x) if name in self.pairs else x

    def ones(self, name: str, shape: Sequence[int]) -> Array:
        """Return an array of ones for a slot; a complex one is the pair (1, 0)."""
        ones = np.ones(shape, DTYPES[self.dtypes[name]].numpy)
        if name in self.pairs:
            ones[..., 1] = 0
        return ones


class Errors(NamedTuple):
    """The errors of the results of kernels inside an op: their size in units of eps, and which of the random ones.

    They are ``joint`` as those of ``app.autodiff.random_errors``. Unless they are ``needed``, a run does without where
    the op rejects them.
    """

    scale: float
    draw: int
    is_joint: bool = False
    is_needed: bool = True


@dataclass(frozen=True, eq=False)
class Spec:
    """Everything in a request but its tensors; equal requests may share one.

    ``dtype`` is the dtype of the op's type variable; ``max_elements`` limits the numbers in a response. ``parameters``
    are the values of the parameters that a request leaves out. With ``errors``, evaluations run for a comparison with
    others: see ``app.autodiff.compared``.
    """

    op: Op
    attrs: Attrs
    dtype: str
    mode: Mode
    device: str
    max_elements: int
    parameters: ParameterSet = NO_PARAMETERS
    errors: Errors | None = None

    @cached_property
    def inputs(self) -> Side:
        """The op's inputs."""
        return self._side(self.op.inputs, self.op.general.inputs)

    @cached_property
    def outputs(self) -> Side:
        """The op's outputs."""
        return self._side(self.op.outputs, self.op.general.outputs)

    @cached_property
    def numbers(self) -> tuple[Array, ...]:
        """The number attributes, as scalars of the op's type variable."""
        return tuple(number(value, self.dtype) for value in self.attrs.numbers().values())

    @cached_property
    def held(self) -> Arrays:
        """The inputs that are parameters whose values a request leaves out: the last ones of the op."""
        return {name: self.parameters.arrays[name] for name in self.op.held}

    @cached_property
    def fixed(self) -> slice:
        """Where the leaves of an evaluation are that a request does not have: parameters, then number attributes."""
        return slice(len(self.op.inputs) - len(self.op.held), len(self.op.inputs) + len(self.numbers))

    @cached_property
    def static(self) -> tuple[tuple[str, Any], ...]:
        """The static attributes."""
        return tuple(self.attrs.static().items())

    @cached_property
    def batching(self) -> Batching:
        """Which rows of the op are independent with these attributes."""
        with blame_op(self.op, "batching"):
            return self.op.batching_for(self.attrs)

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """The integer static attributes, which are also symbols of shapes."""
        return {name: value for name, value in self.static if isinstance(value, int)}

    def _side(self, slots: Sequence[Input | Output], every: Sequence[Input | Output]) -> Side:
        differentiable = tuple([slot.name for slot in slots if self.op.is_differentiable(slot, self.dtype)])
        dtypes = {slot.name: self.op.dtype_of(slot, self.dtype) for slot in slots}
        pairs = frozenset(slot.name for slot in slots if slot.is_complex)
        return Side(self.dtype, dtypes, differentiable, tuple([s.name for s in every if s.name not in dtypes]), pairs)


@dataclass(eq=False)
class Point:
    """Where an op is evaluated: typed inputs, and the values of the symbols in the op's shapes (``dims``).

    ``size`` is the number of elements in all inputs of a request; ``output_shapes`` follow from the symbols, ``None``
    where they do not determine the shape. ``app.autodiff.binding.point_at`` computes them.
    """

    spec: Spec
    inputs: Arrays
    dims: Dims
    size: int
    output_shapes: Mapping[str, tuple[int, ...] | None]

    @property
    def op(self) -> Op:
        """The op."""
        return self.spec.op

    @property
    def cost(self) -> int:
        """The approximate multiply-adds of one forward pass: the op's ``cost``, and at least one per number."""
        op = self.spec.op
        if op.cost is None:
            return self.size + self.spec.parameters.size
        with blame_op(op, "cost"):
            return max(self.size + self.spec.parameters.size, op.cost(self.dims))

    def admit_work(self, times: int = 1) -> None:
        """Raise ``Unprocessable`` before work that would take minutes: ``times`` the cost of the op."""
        if (cost := times * self.cost) > MAX_COST:
            message = f"op {self.op.name} takes {cost} multiply-adds at this size, and kernels cannot be interrupted"
            raise wrong(("inputs",), message, expected=f"at most {MAX_COST}", got=str(cost))

    def admit(self, elements: int, what: str) -> None:
        """Raise ``Unprocessable`` before computing a response over the element limit."""
        if elements > (limit := self.spec.max_elements):
            message = f"the {what} would have {elements} elements; request products, or a part of it (wrt, of)"
            raise wrong(("inputs",), message, expected=f"at most {limit} elements", got=str(elements))


def as_numbers(pairs: Array) -> Array:
    """Return pairs of the real and the imaginary part as complex numbers, a view if possible."""
    return np.ascontiguousarray(pairs).view(np.result_type(pairs.dtype, np.complex64))[..., 0]


def number(value: float, dtype: str) -> Array:
    """Return a number attribute as a scalar of the op's type variable, infinite if it overflows."""
    row = DTYPES[dtype]
    if not row.low < value < row.high:
        return np.asarray(math.copysign(math.inf, value)).astype(row.numpy)
    return narrow(np.asarray(value, np.float64), row)


@contextmanager
def blame_op(op: Op, what: str) -> Generator[None]:
    """Report an exception from an op author's function as ``OpFailed``.

    ``InvalidInput`` passes through, and what is no fault of the author.
    """
    try:
        yield
    except (InvalidInput, PullbackError, Postponed, GeneratorExit):
        raise
    except BaseException as error:
        log.warning("op %s: %s failed", op.name, what, exc_info=True)
        kind, text = type(error).__name__, clip(without_paths(text_of(error)), MAX_TEXT // 2)
        message = f"op {op.name}: {what} raised {kind}" + (f": {text}" if text else "")
        entry = Entry((op.name, what), message, expected="no exception", got=kind)
        raise OpFailed(message, entry, where=author_line(error)) from error
