"""The arguments of an author's NumPy functions, and a call of the op's reference.

Floats arrive as float64 whatever the dtype that is checked, because many NumPy functions refuse bfloat16 and lose
digits in float16. Inputs are rounded to that dtype before, so the widened numbers are those that the op gets.
"""

from typing import Any

import numpy as np

from app.autodiff.point import Arrays, Point, blame_op
from app.runtime.op_errors import op_errors
from ops import Array, OpFault, located, many

# How far values in float64 may be off the reference, relative to the largest: far less than a constant in float32 is.
SAME = 2.0**-36


def as_float64(x: Array) -> Array:
    """Return floats as float64, in an array of the same class; integers and bools keep their dtype."""
    return x if x.dtype.kind in "iub" else np.asanyarray(x, np.float64)


def reference_at(point: Point, inputs: Arrays) -> list[Any]:
    """Return what the op's reference, which it must have, returns for these inputs, as a list."""
    assert point.op.reference is not None
    with np.errstate(all="ignore"):
        found = many(point.op.reference(*map(as_float64, inputs.values()), **point.spec.attrs.model_dump()))
        imaginary: list[Any] = [np.imag(value) for value in found if np.iscomplexobj(value)]
        if any(map(np.any, imaginary)):
            # NumPy would drop the imaginary parts.
            raise TypeError("reference: expected real numbers, got complex ones")
        return found


def has_reference(point: Point) -> bool:
    """Return whether the op's reference, if it has one, returns at a point."""
    if point.op.reference is not None:
        try:
            reference_at(point, point.inputs)
        except BaseException:  # noqa: BLE001 - the op author's code may raise anything, or exit
            return False
    return True


def is_as_reference(point: Point, outputs: Arrays) -> bool:
    """Return whether outputs in a wide dtype are those of the op's reference, if it has one that returns at a point."""
    if point.op.reference is None or not has_reference(point):
        return True
    pairs = zip(map(as_float64, outputs.values()), reference_at(point, point.inputs), strict=True)
    return all(np.allclose(y, expected, SAME, SAME * np.abs(y).max(initial=0), equal_nan=True) for y, expected in pairs)


def is_singular(point: Point) -> bool:
    """Whether the op declares that derivatives are infinite at a point by nature; ``OpFailed`` if it does not say."""
    op, inputs = point.op, {name: as_float64(x) for name, x in point.inputs.items()}
    if op.singular is None:
        return False
    with blame_op(op, "singular"):
        found = np.asarray(op.singular(inputs, point.spec.attrs))
    if found.shape or found.dtype != np.bool_:
        got = f"{found.dtype} of shape {[*found.shape]}"
        expected = "True or False for the whole point, such as bool(np.any(...))"
        with op_errors(op.name):
            raise OpFault("singular", "the point", expected=expected, got=got, where=located(op.singular))
    return bool(found)
