"""Random errors of the tensors of a graph, relative to each number."""

from typing import Any, Literal, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np
import tensorflow as tf

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
        self._known = dict[tuple[tf.Graph, tf.DType], tuple[Tensor, Tensor]]()
        self.iterations = dict[tf.Graph, Tensor]()
        """What counts the iterations of a loop, by the graph of its body."""

    def off(self, x: Tensor, size: Tensor | None = None) -> Tensor:
        """Return a tensor in which each number is off by a random multiple of itself, or of ``size`` times that.

        Real and imaginary parts are off by themselves: a small one may have all of its digits.
        """
        if x.dtype.is_complex:
            return tf.complex(self.off(tf.math.real(x), size), self.off(tf.math.imag(x), size))
        self._count += 1
        noise = self._noise(x)
        scale, one = self._numbers(x.dtype)
        factor = scale if size is None else tf.raw_ops.Mul(x=scale, y=tf.cast(size, x.dtype))
        one_off = tf.raw_ops.AddV2(x=one, y=tf.raw_ops.Mul(x=factor, y=noise))
        with x.graph.gradient_override_map({"Mul": UNDIFFERENTIATED}):
            # Not x + x * noise: an infinite number would become NaN.
            moved = tf.raw_ops.Mul(x=x, y=one_off)
        rounded, flushed = self._losses
        if rounded:
            moved += WIDTH * noise * tf.minimum(MOST_LOST * tf.abs(x), rounded)
        return tf.where(tf.abs(moved) < flushed, tf.zeros_like(moved), moved) if flushed else moved

    def _noise(self, x: Tensor) -> Tensor:
        """Return uniform random numbers between -1/2 and 1/2."""
        is_outside = tf.compat.v1.get_default_graph() is self._graph
        is_joint = self._units == "own, joint" and (self._is_elementwise or not is_outside)
        # Raw operations, because those of Python add several more to the graph of each. Numbers of float32 take a
        # fourth of the time of normal ones of float64, and errors need no more digits.
        drawn = tf.raw_ops.StatelessRandomUniformV2(
            shape=tf.constant([], tf.int32) if is_joint else tf.raw_ops.Shape(input=x),
            key=self._key,
            counter=self._counter(),
            alg=PHILOX,
            dtype=tf.float32,
        )
        noise = tf.raw_ops.Sub(x=tf.raw_ops.Cast(x=drawn, DstT=x.dtype), y=tf.constant(0.5, x.dtype))
        return (noise + tf.sign(noise) / 2) / 2 if is_joint else noise

    def _counter(self) -> Tensor:
        """Return what selects the random numbers of an operation: they differ in each iteration of a loop."""
        iteration = self.iterations.get(tf.compat.v1.get_default_graph())
        if iteration is None:
            return tf.constant(np.array([self._count, 0], np.uint64))
        return tf.stack([tf.constant(self._count, tf.uint64), iteration])

    def _numbers(self, dtype: tf.DType) -> tuple[Tensor, Tensor]:
        """Return the width of the errors and 1, once in each graph: those of a loop are not known outside of it."""
        key = tf.compat.v1.get_default_graph(), dtype
        if key not in self._known:
            unit = WIDTH if self._units == "all" else WIDTH * eps_of(dtype)
            self._known[key] = tf.cast(unit * self._scale, dtype), tf.ones([], dtype)
        return self._known[key]


def eps_of(dtype: tf.DType) -> float:
    """Return eps of a float or complex dtype."""
    finfo: Any = ml_dtypes.finfo  # its own types say that it is a class without fields
    return float(finfo(dtype.real_dtype.as_numpy_dtype).eps)
