"""Trials of XLA: an op gets it by default once XLA and a graph agree at its examples and at special numbers.

XLA may rewrite what it compiles, such as log(exp(x)) as x. So a table of kernels cannot promise the same answers.
"""

from itertools import product

import numpy as np
import tensorflow as tf

from app.autodiff.programs import Program
from app.runtime.modes import Trace
from app.runtime.xla_sessions import XlaSession
from ops import Array, Op

CPU = "/device:CPU:0"
# Far from the ends of float32, so that the squares of derivatives neither overflow nor underflow.
NUMBERS = (
    0.0,
    -0.0,
    0.5,
    1.0,
    -1.0,
    2.0,
    -3.0,
    10.0,
    -10.0,
    40.0,
    -40.0,
    1e3,
    -1e3,
    1e-6,
    -1e-6,
    np.inf,
    -np.inf,
    np.nan,
)
WHOLE = (-3, -1, 0, 1, 2, 7)
ROWS, SEED = 512, 0
# Roundings may differ by more in a number that cancels, as a part of itself or of a usual result.
RELATIVE = 1e-3


def agrees(program: Program) -> bool:
    """Return whether XLA computes what a graph does; raise whatever the op and TensorFlow raise.

    The traces are dropped: those of requests have other shapes.
    """
    leaves = [*_inputs(program.op, program.dtype), *_numbers(program.op, program.dtype)]
    specs = [tf.TensorSpec(leaf.shape, tf.as_dtype(leaf.dtype)) for leaf in leaves]
    with tf.device(CPU), np.errstate(all="ignore"):
        graph = Trace(program, "graph", specs, CPU)(leaves)
        xla = Trace(program, "xla", specs, CPU, XlaSession)(leaves)
        return all(_are_equal(graph[key], xla[key]) for key in graph if not isinstance(key[0], str))


def _inputs(op: Op, dtype: str) -> list[Array]:
    """Return the numbers of the examples and special ones: all combinations, or many random ones."""
    kinds = [tf.as_dtype(op.dtype_of(slot, dtype)) for slot in op.inputs]
    choices = [_special(op, i, kind) for i, kind in enumerate(kinds)]
    rows = list(product(*choices))
    if len(rows) > ROWS:
        rng = np.random.default_rng(SEED)
        rows = [tuple(column[int(rng.integers(len(column)))] for column in choices) for _ in range(ROWS)]
    for example in op.examples:
        every = np.broadcast_arrays(*(np.asarray(example.inputs[slot.name]) for slot in op.inputs))
        rows += list(zip(*(np.ravel(x)[:ROWS].tolist() for x in every), strict=True))
    return [
        np.asarray(column, kind.as_numpy_dtype) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)
    ]


def _special(op: Op, number: int, kind: tf.DType) -> tuple[float, ...]:
    slot = op.inputs[number]
    if kind.is_bool:
        return (False, True)
    if kind.is_integer:
        return WHOLE
    return (*NUMBERS, *slot.domain, *slot.kinks, *slot.poles)


def _numbers(op: Op, dtype: str) -> list[Array]:
    return [np.asarray(value, dtype) for value in op.attrs().numbers().values()]


def _are_equal(one: Array | None, other: Array | None) -> bool:
    """Return whether the same numbers are NaN and infinite, and the others nearly equal."""
    if one is None or other is None:
        return one is other
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    is_finite = np.isfinite(one)
    if not np.array_equal(one[~is_finite], other[~is_finite], equal_nan=True):
        return False
    a, b = one[is_finite], other[is_finite]
    usual = np.median(np.abs(a[a != 0])) if a.any() else 0.0
    return bool((np.abs(a - b) <= RELATIVE * (np.abs(a) + usual)).all())
