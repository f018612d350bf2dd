"""Which constants of a graph are rounded numbers, and to which dtype: 0.1 is one, 0.5 and 12345 are none.

A constant in float64 may come from float32, as ``tf.constant(np.float32(0.1), tf.float64)`` does. Nothing but its value
tells: float32 has it, it needs most of the bits of float32, and it is not the number that its digits in decimal say.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from app.autodiff.random_errors import eps_of
from app.runtime.kernels import nodes_of
from ops import Array, Tensor

# The dtype with the fewest digits: a constant that is exact in it is so in any.
FEWEST_DIGITS = tf.bfloat16
# A number that needs at most this part of its bits is not rounded, but for one in some hundred.
FEW = 2 / 3
# The most numbers of a constant whose digits in decimal are compared; that takes a microsecond for each.
MOST_WRITTEN = 1 << 12


def has_few_digits(constant: Tensor) -> bool:
    """Return whether every dtype can represent the numbers of a constant."""
    value: Array = np.asarray(tf.get_static_value(constant))
    value = np.stack([np.real(value), np.imag(value)])
    with np.errstate(over="ignore"):
        return bool(
            np.array_equal(value.astype(FEWEST_DIGITS.as_numpy_dtype).astype(value.dtype), value, equal_nan=True)
        )


def errors_of(value: Array, dtype: tf.DType, widest: tf.DType) -> Array | None:
    """Return how large the roundings of the numbers of a constant are, in units of eps of its dtype; ``None``: all 1.

    In the ``widest`` dtype of the op, every constant counts as rounded.
    """
    parts = (np.real(value), np.imag(value)) if dtype.is_complex else (value,)
    if eps_of(dtype) > eps_of(widest):
        rounded = np.any([_is_rounded(part) for part in parts], axis=0)
        return None if rounded.all() else rounded.astype(np.float64)
    if dtype.real_dtype != tf.float64:
        return None
    with np.errstate(over="ignore"):
        narrow = [part.astype(np.float32) for part in parts]
    if not all(map(np.array_equal, narrow, parts)):
        return None
    rounded = np.any(list(map(_is_rounded, narrow)), axis=0)
    return rounded * (eps_of(tf.float32) / eps_of(tf.float64)) if rounded.any() else None


def _is_rounded(x: Array) -> Array:
    """Return of each number whether it seems to be the nearest one in its dtype to another that was meant."""
    bits = 1 - int(np.log2(eps_of(tf.as_dtype(x.dtype))))
    mantissas, _ = np.frexp(x.astype(np.float64))
    scaled = np.ldexp(mantissas, int(FEW * bits))
    found = np.isfinite(scaled) & (scaled != np.rint(scaled))
    if x.size <= MOST_WRITTEN:
        written = np.array([float(str(number)) for number in x.ravel()]).reshape(x.shape)
        found &= written != x.astype(np.float64)
    return found


def dtypes_within(definition: Any) -> frozenset[tf.DType]:
    """Return the float dtypes in a graph, and float32 if it has constants of float64 that are rounded to it."""
    found = set[tf.DType]()
    for node in nodes_of(definition):
        for value in node.attr.values():
            found |= {tf.dtypes.as_dtype(kind).real_dtype for kind in {value.type, *value.list.type} if kind}
        if node.op == "Const" and tf.dtypes.as_dtype(node.attr["dtype"].type).real_dtype == tf.float64:
            numbers = tf.make_ndarray(node.attr["value"].tensor)
            if errors_of(numbers, tf.as_dtype(numbers.dtype), tf.float64) is not None:
                found.add(tf.float32)
    return frozenset(dtype for dtype in found if dtype.is_floating)
