"""Differentiation of the tensors that a program builds: tapes in eager mode, ``tf.gradients`` in a graph.

``tf.gradients`` honours a bare ``gradient_override_map`` at every order; a tape in the same function silently ignores
it. Eager mode has only tapes.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache, partial
from types import TracebackType
from typing import Self, TypeAlias

import tensorflow as tf

# Private, because the kernel has no public function.
from tensorflow.compiler.tf2xla.ops.gen_xla_ops import xla_dynamic_update_slice

# Private, because the public API registers gradients and never removes them.
from tensorflow.python.framework.ops import gradient_registry

from app.errors import PullbackError
from app.runtime import cancellation, vectorization
from app.runtime.repairs.dense_cotangents import CUSTOM_GRADIENT
from ops import Tensor
from pullback.ops._rules import dense


@cache
def _register_slice_gradient() -> None:
    """Register the gradient of ``tf.slice`` and ``tf.concat`` under XLA, once in a process, unless a page has.

    TensorFlow 2.21 computes their gradients there by this kernel, and registers none of it.
    """
    with suppress(KeyError):
        tf.RegisterGradient("XlaDynamicUpdateSlice")(_slice_gradient)


def _slice_gradient(op: tf.Operation, dy: Tensor) -> tuple[Tensor, Tensor, None]:
    """Return dx, which is dy outside of the part that is replaced, and the part of dy that belongs to it."""
    _, part, begin = op.inputs
    dx = xla_dynamic_update_slice(dy, tf.zeros_like(part), begin)
    return dx, tf.slice(dy, begin, tf.shape(part, begin.dtype)), None


_ATTRIBUTE = "_gradient_op_type"

Gradients: TypeAlias = list[Tensor | None]
Pullback: TypeAlias = Callable[[Sequence[Tensor] | None], Gradients]


class NotVectorized(Exception):
    """TensorFlow cannot convert a kernel of a pullback to one for many directions: apply it to each of them alone."""


class Tapes:
    """The calculus of eager mode: nested tapes, one per order; each pullback closes the innermost."""

    def __init__(self, orders: int) -> None:
        """Prepare ``orders`` tapes."""
        _register_slice_gradient()
        self._tapes = [tf.GradientTape(persistent=True, watch_accessed_variables=False) for _ in range(orders)]

    def __enter__(self) -> Self:
        """Start recording."""
        for tape in self._tapes:
            tape.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        """Stop recording."""
        while self._tapes:
            self._tapes.pop().__exit__(kind, e, tb)

    def watch(self, xs: Iterable[Tensor]) -> None:
        """Allow differentiation with respect to these tensors: watch them on every open tape."""
        for x in xs:
            for tape in self._tapes:
                tape.watch(x)

    def pullback(self, ys: Sequence[Tensor], xs: Sequence[Tensor]) -> Pullback:
        """Return the map from cotangents of ``ys`` (``None``: ones) to cotangents of ``xs`` (``None``: no path).

        It closes the innermost tape; the outer tapes record the computation of its gradient.
        """
        tape = self._tapes.pop()
        tape.__exit__(None, None, None)
        gradients = partial(tape.gradient, list(ys), list(xs))
        return lambda dys: list(map(dense, gradients(output_gradients=None if dys is None else list(dys)), xs))

    def each(self, pullback: Pullback, directions: Sequence[Tensor]) -> Gradients:
        """Apply a pullback to every direction along the leading axis of ``directions``, and stack the results.

        There is at least one direction. This is a loop: eager mode is the reference, not the fast mode.
        """
        found = list[Gradients]()
        for row in zip(*(tf.unstack(d) for d in directions), strict=True):
            cancellation.check()
            found.append(pullback(row))
        return [None if any(x is None for x in column) else tf.stack(column) for column in zip(*found, strict=True)]


class Graph:
    """The calculus of every traced mode: ``tf.gradients``."""

    def watch(self, xs: Iterable[Tensor]) -> None:
        """Do nothing: a graph records every path."""

    def pullback(self, ys: Sequence[Tensor], xs: Sequence[Tensor]) -> Pullback:
        """Return the pullback through the current graph."""
        _register_slice_gradient()
        # Sums of two terms: the kernel that sums more begins with whichever input's memory it may reuse, which depends
        # on the order in which threads happen to finish, and so do the last bits.
        method = tf.AggregationMethod.EXPERIMENTAL_TREE
        gradients = partial(tf.gradients, list(ys), list(xs), aggregation_method=method)
        return lambda dys: list(map(dense, gradients(grad_ys=None if dys is None else list(dys)), xs))

    def each(self, pullback: Pullback, directions: Sequence[Tensor]) -> Gradients:
        """Vectorise over the directions (pfor), so that the primal work is done once; raises ``NotVectorized``."""
        present: list[int] = []
        width = -1

        def one(rows: Sequence[Tensor]) -> list[Tensor]:
            nonlocal width
            found = pullback(rows)
            width = len(found)
            present[:] = [i for i, gradient in enumerate(found) if gradient is not None]
            # A map must return something: if every gradient is missing, it returns the direction.
            return [gradient for gradient in found if gradient is not None] or [rows[0]]

        vectorization.correct()
        try:
            stacked = tf.vectorized_map(one, list(directions))
        except PullbackError:
            raise
        except Exception as error:
            if width < 0:  # the pullback itself has failed
                raise
            raise NotVectorized(str(error)) from None
        return [stacked[present.index(i)] if i in present else None for i in range(width)]


Calculus: TypeAlias = Tapes | Graph
"""The differentiation method of one mode, which a program uses while it is built."""


def without_gradient(kinds: Iterable[str]) -> list[str]:
    """Return which of these types of operations have no gradient, sorted: TensorFlow knows none, not even ``None``."""
    return sorted({*kinds} - {*gradient_registry.list(), "Placeholder"})


def forget_gradients(graph: tf.Graph) -> None:
    """Remove the gradients that ``tf.custom_gradient`` has registered for the nodes of a graph.

    TensorFlow keeps each of them, and with it the graph, for the life of the process. A complete graph that is never
    differentiated again does not need them. Those of functions that it calls are kept: others may call them too.
    """
    for node in graph.as_graph_def().node:
        if _ATTRIBUTE in node.attr and (name := node.attr[_ATTRIBUTE].s.decode()).startswith(CUSTOM_GRADIENT):
            gradient_registry._registry.pop(name, None)
