"""The program of an op in double precision, whatever the dtypes of the op: numeric derivatives then have digits."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from app.runtime.calculus import Calculus
from app.runtime.double_precision import DOUBLE, in_double_precision
from app.runtime.modes import Results, Trace, Traceable, Traits
from app.runtime.trace_entry import Reference
from ops import Array, Tensor

_NUMPY = {np.dtype(narrow.as_numpy_dtype): np.dtype(wide.as_numpy_dtype) for narrow, wide in DOUBLE.items()}


@dataclass(frozen=True)
class PreciseProgram:
    """A program whose own ``trace``, in mode graph, is computed in float64; its leaves are ``wide``."""

    program: Traceable
    trace: Trace = field(compare=False)

    @property
    def reference(self) -> Reference:
        """That of the program."""
        return self.program.reference._replace(kind="in float64")

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

    def build(self, calculus: Calculus, leaves: Sequence[Tensor]) -> Results:
        """Return the program's results in float64, ``None`` for missing ones, without results that are shapes."""
        del calculus
        function, trace = self.trace.function, self.trace
        found = dict(zip(trace.kinds, function.outputs, strict=True))
        wanted = {key: y for key, y in found.items() if not isinstance(key[0], str)}
        values = in_double_precision(function, leaves, list(wanted.values()))
        return {**dict(zip(wanted, values, strict=True)), **dict.fromkeys(trace.missing)}


def precise_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return float64 for a narrower float, complex128 for complex64, and any other dtype as it is."""
    return _NUMPY.get(dtype, dtype)
