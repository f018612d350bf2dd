"""Random errors of the tensors of a graph, relative to each number."""

from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np
import tensorflow as tf

# Private, because only the object that is a tape has a public method that stops it.
from tensorflow.python.eager import record

from app.runtime.kernels import nodes_of
from ops import Array, Tensor

PHILOX = 1
# The width of a uniform distribution, in standard deviations.
WIDTH = 12**0.5
# The largest error that underflow may be, as a fraction of a number: a number that is lost altogether is no rounding.
MOST_LOST = 0.1

# The gradient of a product that puts an error into a number. That of any other product would have further products, and
# errors of these: with the second order, most nodes of a loop.
UNDIFFERENTIATED = "PullbackRandomError"

Units: TypeAlias = Literal["all", "own", "own, joint"]
"""What the scale of errors counts: 1 for ``all`` dtypes, or eps of each tensor's ``own``.

Where they are ``joint``, all numbers of one result in a loop, or of an op whose numbers never meet, are off by one
random factor, which no chance makes small: that takes a tenth of the time.
"""
# The dtype with the fewest digits: a constant that is exact in it is so in any.
FEWEST_DIGITS = tf.bfloat16
# A number that needs at most this part of its bits is not rounded, but for one in some hundred.
FEW = 2 / 3
# The most numbers of a constant whose digits in decimal are compared; that takes a microsecond for each.
MOST_WRITTEN = 1 << 12


class Losses(NamedTuple):
    """What numbers near 0 lose: at most ``rounded``, and a tenth of themselves; those under ``flushed`` become 0."""

    rounded: float = 0.0
    flushed: float = 0.0


NO_LOSSES = Losses()


@tf.RegisterGradient(UNDIFFERENTIATED)
def _past_error(operation: Any, dy: Tensor) -> tuple[Tensor, None]:
    """Return the cotangent of a number without its error: what a kernel rounds is not differentiated."""
    del operation
    return dy, None


class RandomErrors:
    """Random errors of deviation ``scale``, a tensor, in the graph that is being built and in those of its loops.

    ``draw`` selects the random numbers. If it ``is_elementwise``, the numbers of the op never meet.
    """

    def __init__(self, scale: Tensor, draw: Tensor, units: Units, losses: Losses, *, is_elementwise: bool) -> None:
        """Take what follows from the program, and make the errors in the graph that is being built."""
        self._graph, self._scale, self._count = tf.compat.v1.get_default_graph(), scale, 0
        self._losses, self._units, self._is_elementwise = losses, units, is_elementwise
        self._key = tf.reshape(tf.cast(draw, tf.uint64), [1])
        self.iterations = dict[tf.Graph, Tensor]()
        """What counts the iterations of a loop, by the graph of its body."""

    def off(self, x: Tensor, size: Tensor | None = None) -> Tensor:
        """Return a tensor in which each number is off by a random multiple of itself, or of ``size`` times that.

        Real and imaginary parts are off by themselves: a small one may have all of its digits.
        """
        if x.dtype.is_complex:
            return tf.complex(self.off(tf.math.real(x), size), self.off(tf.math.imag(x), size))
        self._count += 1
        is_outside = tf.compat.v1.get_default_graph() is self._graph
        is_joint = self._units == "own, joint" and (self._is_elementwise or not is_outside)
        unit = WIDTH if self._units == "all" else WIDTH * eps_of(x.dtype)
        function = _factor(x.dtype, unit, self._losses, is_joint=is_joint)
        scale = self._scale if size is None else self._scale * tf.cast(size, tf.float64)
        # Unseen by tapes: what a kernel rounds is not differentiated.
        with record.stop_recording():
            (factor,) = tf.raw_ops.PartitionedCall(
                args=[x, scale, self._key, self._counter()], Tout=[x.dtype], f=function
            )
        factor.set_shape(x.shape)
        with x.graph.gradient_override_map({"Mul": UNDIFFERENTIATED}):
            # Not x + x * noise: an infinite number would become NaN.
            return tf.raw_ops.Mul(x=x, y=factor)

    def _counter(self) -> Tensor:
        """Return what selects the random numbers of an operation: they differ in each iteration of a loop."""
        iteration = self.iterations.get(tf.compat.v1.get_default_graph())
        if iteration is None:
            return tf.constant(np.array([self._count, 0], np.uint64))
        return tf.stack([tf.constant(self._count, tf.uint64), iteration])


def is_error(node: Any) -> bool:
    """Return whether a node of a graph's definition computes errors."""
    return node.op == "PartitionedCall" and "pullback_error" in node.attr["f"].func.name


@cache
def _factor(dtype: tf.DType, unit: float, losses: Losses, *, is_joint: bool) -> Any:
    """Return a function with the factors by which the numbers of a tensor are off: a node, not ten, for each tensor."""

    def pullback_error(x: Tensor, scale: Tensor, key: Tensor, counter: Tensor) -> Tensor:
        shape = tf.constant([], tf.int32) if is_joint else tf.shape(x)
        # Numbers of float32 take a fourth of the time of normal ones of float64, and errors need no more digits.
        drawn = tf.raw_ops.StatelessRandomUniformV2(shape=shape, key=key, counter=counter, alg=PHILOX, dtype=tf.float32)
        noise = tf.cast(drawn, dtype) - 0.5
        if is_joint:
            noise = (noise + tf.sign(noise) / 2) / 2
        error = tf.cast(unit * scale, dtype)
        if losses.rounded:
            error += WIDTH * tf.minimum(tf.constant(MOST_LOST, dtype), losses.rounded / tf.abs(x))
        found = 1 + error * noise
        return tf.where(tf.abs(x * found) < losses.flushed, tf.zeros_like(found), found) if losses.flushed else found

    signature = [tf.TensorSpec(None, dtype), tf.TensorSpec(None, tf.float64)]
    signature += [tf.TensorSpec([1], tf.uint64), tf.TensorSpec([2], tf.uint64)]
    with tf.init_scope():
        return tf.function(pullback_error, input_signature=signature, autograph=False).get_concrete_function()


def eps_of(dtype: tf.DType) -> float:
    """Return eps of a float or complex dtype."""
    finfo: Any = ml_dtypes.finfo  # its own types say that it is a class without fields
    return float(finfo(dtype.real_dtype.as_numpy_dtype).eps)


# A constant in float64 may come from float32, as ``tf.constant(np.float32(0.1), tf.float64)`` does. Nothing but its
# value tells: float32 has it, it needs most of the bits of float32, and it is not the number that its digits in
# decimal say.
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
