"""Parameters: inputs of an op whose values a request leaves out, because the server has them."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from pullback.ops._claims import Array
from pullback.ops._fields import check_fields, check_text, shown
from pullback.ops._slots import BOOL, FLOATS, INTEGERS, MAX_RANK, Input

# How far checks move a parameter, as a fraction of its numbers; those that are 0 move by this fraction of the largest.
AROUND = 0.1
ALIGNMENT = 64


@dataclass(frozen=True, eq=False)
class Parameter:
    """An input whose value the server has: its name, and the page's own value, which gives its dtype and shape.

    The functions of the page get parameters behind the inputs. Requests leave them out, and may differentiate with
    respect to them. Checks move them around their values, or in ``domain`` if there is one.
    """

    name: str
    value: Any = field(repr=False)
    differentiable: bool = True
    doc: str = ""
    domain: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        """Keep a copy of the value that nothing can change; raise an error for anything but finite numbers."""
        what = f"parameter {shown(self.name)}"
        check_fields(Parameter, self, what)
        check_text(self.doc, what)
        given: Any = self.value
        own: Array = np.asarray(given.numpy() if hasattr(given, "numpy") else given)
        if not hasattr(given, "dtype") and own.dtype == np.float64:
            own = own.astype(np.float32)  # a list of Python's floats, which TensorFlow reads so
        if own.dtype.name not in (*FLOATS, *INTEGERS, BOOL) or own.ndim > MAX_RANK:
            expected = f"an array of real numbers with at most {MAX_RANK} axes"
            if own.dtype.kind == "c":
                expected += ", such as the real and the imaginary part as two parameters"
            raise ValueError(f"{what}: expected {expected}, got {own.dtype.name} of shape {own.shape}")
        # NumPy has no test for the narrow floats.
        if not np.isfinite(own if own.dtype.kind in "iubf" else np.asarray(own, np.float64)).all():
            raise ValueError(f"{what}: expected finite numbers, got NaN or infinity")
        own = _aligned_copy(own)
        own.flags.writeable = False
        object.__setattr__(self, "value", own)
        object.__setattr__(self, "differentiable", self.differentiable and own.dtype.name in FLOATS)

    @cached_property
    def slot(self) -> Input:
        """The input of the op that gets the value."""
        low, high = self.domain or self._range
        dtypes, shape = (self.value.dtype.name,), self.value.shape
        return Input(self.name, dtypes, shape, self.differentiable, self.doc, domain=(low, high))

    @property
    def _range(self) -> tuple[float, float]:
        """The least and the largest number that checks try."""
        if not self.value.size:
            return 0.0, 1.0
        low, high = float(self.value.min()), float(self.value.max())
        if self.value.dtype.name in FLOATS:
            # Those that ``around`` returns, without as large arrays.
            room = AROUND * (max(abs(low), abs(high)) or 1.0) if (self.value == 0).any() else 0.0
            low, high = min(low - AROUND * abs(low), -room or low), max(high + AROUND * abs(high), room or high)
        return (low, high) if low < high else (low, low + 1)

    def drawn(self, rng: np.random.Generator) -> Array:
        """Draw numbers near the value."""
        return self.around(rng.uniform(size=np.shape(self.value)))

    def around(self, fractions: Array) -> Array:
        """Return numbers near the value, from below it at fraction 0 to above it at 1; the value itself for integers.

        ``fractions`` has the shape of the value, behind any number of axes.
        """
        if self.value.dtype.name not in FLOATS:
            return np.broadcast_to(self.value, fractions.shape)
        sizes = np.abs(np.asarray(self.value, np.float64))
        sizes = np.where(sizes > 0, sizes, sizes.max(initial=0.0) or 1.0)
        return np.asarray(self.value, np.float64) + AROUND * sizes * (2 * fractions - 1)


@dataclass(frozen=True, eq=False)
class ParameterSet:
    """Values of all parameters of an op, by name and in its order, which never change; ``digest`` names them."""

    arrays: Mapping[str, Array]

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the names, dtypes, shapes and bytes, in hexadecimal digits."""
        found = hashlib.sha256()
        for name, x in self.arrays.items():
            found.update(f"{name} {x.dtype.name} {list(x.shape)}\n".encode())
            found.update(np.ascontiguousarray(x).reshape(-1).view(np.uint8).data)
        return found.hexdigest()

    @cached_property
    def size(self) -> int:
        """How many numbers they have."""
        return sum(x.size for x in self.arrays.values())

    @cached_property
    def identities(self) -> frozenset[int]:
        """The ``id`` of each array."""
        return frozenset(map(id, self.arrays.values()))


NO_PARAMETERS = ParameterSet(MappingProxyType({}))


def _aligned_copy(x: Array) -> Array:
    """Return a copy that TensorFlow uses in place: it would copy any other one at each call."""
    raw = np.empty(x.nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    copy: Array = raw[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


def own_values(parameters: Sequence[Parameter]) -> ParameterSet:
    """Return the page's own values."""
    if not parameters:
        return NO_PARAMETERS
    return ParameterSet(MappingProxyType({each.name: cast(Array, each.value) for each in parameters}))
