"""Where an op is evaluated and differentiated: what a request says of it, and the tensors there."""

import logging
import math
from collections.abc import Generator, Hashable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from app.errors import Entry, OpFailed, wrong
from app.tensors.casting import narrow
from app.tensors.dtypes import DTYPES
from ops import Array, Attrs, Input, InvalidInput, Mode, Op, Output

Arrays: TypeAlias = Mapping[str, Array]
Dims: TypeAlias = Mapping[str, int | tuple[int, ...]]

log = logging.getLogger("pullback")

# The modes in which elementwise programs are padded, so that evaluations can share a call.
PADDED_MODES: tuple[Mode, ...] = ("graph", "xla")
# Multiply-adds of one forward: half a minute or so on two cores.
MAX_COST = 1 << 38


@dataclass(frozen=True)
class Side:
    """The inputs of an op, or its outputs, when its type variable is ``dtype``.

    ``dtypes`` are those of each, in the op's order; derivatives reach the ``live`` ones.
    """

    dtype: str
    dtypes: Mapping[str, str]
    live: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Spec:
    """What a request says of an op, its tensors apart: requests that say the same may have it in common.

    ``dtype`` is that of the op's type variable; no answer has more numbers in it than ``max_elements``.
    """

    op: Op
    attrs: Attrs
    dtype: str
    mode: Mode
    device: str
    max_elements: int

    @cached_property
    def inputs(self) -> Side:
        """The op's inputs."""
        return self._side(self.op.inputs)

    @cached_property
    def outputs(self) -> Side:
        """The op's outputs."""
        return self._side(self.op.outputs)

    @cached_property
    def numbers(self) -> tuple[Array, ...]:
        """The number attributes, as scalars of the op's type variable."""
        return tuple(number(value, self.dtype) for value in self.attrs.numbers().values())

    @cached_property
    def static(self) -> tuple[tuple[str, Any], ...]:
        """The static attributes."""
        return tuple(self.attrs.static().items())

    @cached_property
    def batch_key(self) -> Hashable:
        """Equal for evaluations of one program that may share a call."""
        # Bytes, because 0.0 and -0.0 are equal, and not the same.
        return self.mode, self.device, tuple(number.tobytes() for number in self.numbers)

    @cached_property
    def is_padded(self) -> bool:
        """Whether evaluations with one direction are padded: each number depends on its own place alone."""
        return self.op.batching == "elementwise" and self.mode in PADDED_MODES

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """The static attributes that are integers: they are symbols of shapes too."""
        return {name: value for name, value in self.static if isinstance(value, int)}

    def _side(self, slots: Sequence[Input | Output]) -> Side:
        live = (slot.name for slot in slots if self.op.is_differentiable(slot, self.dtype))
        return Side(self.dtype, {slot.name: self.op.dtype_of(slot, self.dtype) for slot in slots}, tuple(live))


@dataclass(eq=False)
class Point:
    """Where an op is evaluated: typed inputs, and what the symbols of the op's shapes stand for there.

    ``size`` is how many numbers the inputs have; ``output_shapes`` are those that the symbols give, ``None`` where they
    do not tell. ``app.autodiff.binding.point_at`` works them out.
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
        """The multiply-adds of one forward, roughly: what the op says, else one a number."""
        op = self.spec.op
        if op.cost is None:
            return self.size
        with blame_op(op, "cost"):
            return max(self.size, op.cost(self.dims))

    def admit_work(self, times: int = 1) -> None:
        """Refuse work that would take minutes: ``times`` the op's, before any of it is done."""
        if (cost := times * self.cost) > MAX_COST:
            message = f"op {self.op.name} takes {cost} multiply-adds at this size, and kernels cannot be interrupted"
            raise wrong(("inputs",), message, expected=f"at most {MAX_COST}", got=str(cost))

    def admit(self, elements: int, what: str) -> None:
        """Refuse an answer over the element limit, before any of it is computed."""
        if elements > (limit := self.spec.max_elements):
            message = f"the {what} would have {elements} elements; request products, or a part of it (wrt, of)"
            raise wrong(("inputs",), message, expected=f"at most {limit} elements", got=str(elements))


def number(value: float, dtype: str) -> Array:
    """Return a number attribute as a scalar of the op's type variable, infinite where it overflows."""
    row = DTYPES[dtype]
    if not row.low < value < row.high:
        return np.asarray(math.copysign(math.inf, value)).astype(row.numpy)
    return narrow(np.asarray(value, np.float64), row)


@contextmanager
def blame_op(op: Op, what: str) -> Generator[None]:
    """Tell what an author's function raises as the op's fault; ``InvalidInput`` is its word, and passes."""
    try:
        yield
    except InvalidInput:
        raise
    except Exception as error:
        log.warning("op %s: %s failed", op.name, what, exc_info=True)
        kind = type(error).__name__
        message = f"op {op.name}: {what} raised {kind}"
        raise OpFailed(message, Entry((op.name, what), message, expected="no exception", got=kind)) from error
