"""Random errors of the tensors of a graph, relative to each number."""

from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np
import tensorflow as tf

# Private, because only the object that is a tape has a public method that stops it.
from tensorflow.python.eager import record

from ops import Tensor

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
