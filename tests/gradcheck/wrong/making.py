"""Constructors of small ops for the tests of the checker: everything but the function and its reference has a default.

The example of an op is drawn from the domains of its inputs, spread evenly, so that it is valid wherever the op is.
"""

from collections.abc import Mapping, Sequence
from functools import wraps
from typing import Any

import numpy as np

from ops import BOOL, FLOATS, Array, Example, Function, Input, Op, Output

WIDE = ("float64",)
BOTH = ("float32", "float64")
MATRIX = ("N", "M")
GOLDEN = 0.6180339887
SIZES: Mapping[str, tuple[int, ...]] = {"...": (4,), "N": (2,)}


def made(
    function: Function, reference: Function | None, inputs: Sequence[Input], *, name: str = "", **changes: Any
) -> Op:
    """Return an op of these inputs and one output ``y``, with one example; its name is the function's by default."""
    name = name or function.__name__
    dtypes = next(slot.dtypes for slot in inputs if slot.dtypes[0] in FLOATS)
    fields: dict[str, Any] = {
        "summary": name.replace("_", " "),
        "doc": None,
        "outputs": (Output("y", dtypes),),
        "mechanism": "custom_gradient",
        "source": "a test",
        "examples": (Example("spread", spread(inputs)),),
    }
    wide = None if reference is None else in_float64(reference)
    return Op(name=name, function=function, reference=wide, inputs=tuple(inputs), **(fields | changes))


def elementwise(
    function: Function,
    reference: Function | None,
    *,
    names: Sequence[str] = ("x",),
    dtypes: tuple[str, ...] = WIDE,
    slot: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Op:
    """Return an elementwise op of the inputs ``names``, in float64 by default; ``slot`` has more fields of each."""
    inputs = [Input(name, dtypes, **(slot or {})) for name in names]
    return made(function, reference, inputs, **({"batching": "elementwise"} | changes))


def rows(
    function: Function,
    reference: Function | None,
    *,
    dtypes: tuple[str, ...] = WIDE,
    out: tuple[str | int, ...] = MATRIX,
    slot: Mapping[str, Any] | None = None,
    inputs: Sequence[Input] = (),
    **changes: Any,
) -> Op:
    """Return an op of rows, by default those of a matrix ``x``, to an output of shape ``out``."""
    inputs = inputs or [Input("x", dtypes, MATRIX, **(slot or {}))]
    fields: dict[str, Any] = {"outputs": (Output("y", dtypes, out),), "batching": "leading_axis"}
    return made(function, reference, inputs, **(fields | changes))


def in_float64(reference: Function) -> Function:
    """Return a reference that gets its floats in float64."""

    @wraps(reference)
    def wide(*xs: Array | None, **attrs: Any) -> Any:
        arrays = (None if x is None else np.asarray(x) for x in xs)
        return reference(*(x if x is None or x.dtype.kind in "biu" else x.astype(np.float64) for x in arrays), **attrs)

    return wide


def spread(inputs: Sequence[Input]) -> dict[str, Any]:
    """Return nested lists of numbers that are spread over the domain of each input."""
    return {slot.name: _spread(slot, start) for start, slot in enumerate(inputs)}


def _spread(slot: Input, start: int) -> Any:
    shape = [n for size in slot.shape for n in ((size,) if isinstance(size, int) else SIZES.get(size, (3,)))]
    steps = ((np.arange(int(np.prod(shape, dtype=int))) + 1) * GOLDEN + 0.27 * start) % 1
    low, high = slot.domain
    numbers = np.round(low + (high - low) * (0.05 + 0.9 * steps), 3).reshape(shape)
    if slot.dtypes == (BOOL,):
        return (steps > 0.5).reshape(shape).tolist()
    return (numbers if slot.dtypes[0] in FLOATS else np.floor(numbers).astype(int)).tolist()
