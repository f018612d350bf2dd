"""Residuals: what a point alone determines of derivatives there, computed once and kept for other directions."""

import threading
import time
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import tensorflow as tf
from tensorflow.python.framework.ops import EagerTensor  # private, as in ``app.runtime.functions``

from app.runtime import cancellation
from app.runtime.cut_traces import Cut, Results, Trace, same_bits
from ops import Array, Tensor

# What the elements of a list may be, the most frequent ones first: a list does not tell.
_ELEMENTS = (
    *(tf.variant, tf.float32, tf.float64, tf.int32, tf.int64, tf.bool, tf.float16, tf.bfloat16),
    *(tf.complex128, tf.complex64, tf.int8, tf.uint8, tf.int16, tf.uint16, tf.uint32, tf.uint64),
)


def size_of(tensor: Tensor) -> int:
    """Return the bytes of a tensor. Of a list, the elements count as much as the largest of the first and the last."""
    if tensor.dtype == tf.variant:
        return _size_of_list(tensor)
    return (tensor.shape.num_elements() or 0) * tensor.dtype.size


def _size_of_list(tensor: Tensor) -> int:
    with suppress(tf.errors.InvalidArgumentError):  # a variant that is not a list has no known size
        length = int(tf.raw_ops.TensorListLength(input_handle=tensor))
        return length * max((size_of(_item(tensor, index)) for index in {0, length - 1} if length), default=0)
    return 0


def _item(tensor: Tensor, index: int) -> Tensor:
    """Return an element of a list, none of whose dtypes or shapes is known."""
    for dtype in _ELEMENTS:
        with suppress(tf.errors.InvalidArgumentError):
            return tf.raw_ops.TensorListGetItem(input_handle=tensor, index=index, element_shape=-1, element_dtype=dtype)
    return tf.zeros((), tf.bool)


# How many sets of residuals one point keeps: of different derivatives, and of pieces of a long array.
SETS = 64


@dataclass(eq=False)
class _Set:
    """The residuals of a trace at known leaves, and the results that these determine; it does not keep the trace."""

    trace: weakref.ref[Trace]
    known: Sequence[Array]
    results: Results
    tensors: Sequence[EagerTensor]

    def is_for(self, trace: Trace, leaves: Sequence[Array]) -> bool:
        """Return whether they are those of a trace at these leaves, bit by bit."""
        return self.trace() is trace and all(map(same_bits, self.known, leaves))


class Residuals:
    """The residuals at one point: of each trace that was called there. Any thread may use them.

    ``reserve`` takes bytes from a budget, negative ones back, and returns whether it has room; what it has no room for
    is not kept.
    """

    def __init__(self, known: int, reserve: Callable[[int], bool]) -> None:
        """Start empty, for calls whose first ``known`` leaves are the point."""
        self.known, self._reserve = known, reserve
        self._sets, self._lock = list[_Set](), threading.Lock()

    def find(self, trace: Trace, leaves: Sequence[Array]) -> _Set | None:
        """Return the residuals of a trace at these leaves, ``None`` if they are not kept."""
        return next((kept for kept in [*self._sets] if kept.is_for(trace, leaves)), None)

    def compute(self, cut: Cut, leaves: Sequence[Array]) -> tuple[_Set, bool, float]:
        """Return the residuals of a trace that is cut, whether they are kept, and how many seconds they took."""
        for gone in [each for each in self._sets if each.trace() is None]:
            self._sets.remove(gone)
            self._reserve(-sum(map(size_of, gone.tensors)))
        expected = cut.expected_bytes(leaves)
        has_room = len(self._sets) < SETS and self._reserve(expected)
        began = time.perf_counter()
        results, tensors = cut.first(leaves)
        seconds = time.perf_counter() - began
        new = _Set(weakref.ref(cut.trace), leaves[: self.known], results, tensors)
        if has_room and not (has_room := self._reserve(sum(map(size_of, tensors)) - expected)):
            self._reserve(-expected)
        if has_room:
            self._sets.append(new)
        return new, has_room, seconds


@dataclass
class Use:
    """A use of residuals by one thread.

    ``computed`` counts those that were not there, ``lost`` those of them that are not kept; to compute them took
    ``seconds``, for the first time in this process if it ``is_first``.
    """

    residuals: Residuals
    is_first_part_only: bool
    computed: int = 0
    lost: int = 0
    seconds: float = 0.0
    is_first: bool = False

    def run(self, trace: Trace, members: Sequence[Sequence[Array]]) -> list[Results]:
        """Return the results of a trace for members that differ only in their directions.

        With the first part only, they are ``None`` where they depend on directions.
        """
        leaves = members[0]
        cut = trace.cut(len(leaves), self.residuals.known)
        kept = self.residuals.find(trace, leaves)
        if kept is None:
            self.is_first = self.is_first or not cut.has_run
            kept, is_kept, seconds = self.residuals.compute(cut, leaves)
            self.computed, self.lost, self.seconds = (
                self.computed + 1,
                self.lost + (not is_kept),
                self.seconds + seconds,
            )
        if self.is_first_part_only:
            return [{**dict.fromkeys(trace.kinds), **kept.results}]
        cancellation.check()
        return [{**kept.results, **rest} for rest in cut.seconds(members, kept.tensors)]


class _Thread(threading.local):
    use: Use | None = None


_thread = _Thread()


@contextmanager
def using(residuals: Residuals, *, is_first_part_only: bool = False) -> Generator[Use]:
    """Let the calls of traces in mode graph, on this thread and in this block, use and keep residuals."""
    use = _thread.use = Use(residuals, is_first_part_only)
    try:
        yield use
    finally:
        _thread.use = None


def in_use() -> Use | None:
    """Return the use of residuals on this thread."""
    return _thread.use
