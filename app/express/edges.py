"""Edges: the numbers on which a frame is compared with the ordinary way before it is learned.

They are those that readers and writers treat in ways of their own: numbers with many digits or with exponents, integers
that are not exact in a float, zeros with a sign, subnormal numbers, the largest ones, and those that JSON cannot write.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np

from app.autodiff.evaluation import present
from app.errors import PullbackError
from app.express import bodies
from app.express.calls import joined
from app.express.frames import Frame, ListFrame, RangeFrame
from app.express.heads import Head, Unknown
from app.runtime.modes import KeyedArrays
from ops import Array

# Numbers as results. All are written as numbers, in either dtype.
FINITE = np.array(
    (
        *(0.1, -1 / 3, 1e-7, 123456.789, 1e15, 1e16, 1e21, 1e22, 16777217, -2.0, 3.0, 2.0**53 + 2, 0.0, -0.0, 1e-4),
        *(1e-5, 5e-324, 1.4e-45, -1.1754942e-38, 2.2250738585072014e-308, 3.4028234663852886e38),
        *(-1.7976931348623157e308, 1e-26),
    )
)
# Numbers that a writer may have to write in another way: the last is the float32 that orjson does not write exactly.
OTHER = (np.nan, np.inf, -np.inf, float(np.float32(7.038531e-26)))
# Numbers as a client may write them.
TEXTS = (
    *(b"0.1", b"-0.30000000000000004", b"1.00000005960464477539062500001", b"0.1000000000000000055511", b"2", b"-17"),
    *(b"16777217", b"9007199254740993", b"18446744073709551615", b"-9223372036854775808", b"-0", b"-0.0", b"0e0"),
    *(b"1E5", b"1e+5", b"12e-1", b"5e-324", b"1e-400", b"-1.4e-45", b"7.006492321624085e-46", b"1e-7", b"1e22"),
    *(b"123456.789e3", b"3.4028235677973362e38"),
)
# Numbers that a reader may refuse, each alone: those that only float64 holds, and an integer of more than 64 bits.
LARGE = (b"3.4028235677973366e38", b"-1e39", b"1.7976931348623157e308", b"-123456789012345678901234567890")

LeavesOf = Callable[[bytes], Sequence[Array]]
"""Returns the leaves that the ordinary way reads in a body; raises a ``PullbackError`` for one that it refuses."""


def results_at_edges(results: KeyedArrays) -> Iterator[KeyedArrays]:
    """Yield results of the same keys, shapes and dtypes with the numbers of the edges, all of them in each result."""
    size = max(array.size for array in results.values() if array is not None)
    for start in range(0, len(FINITE), size):
        yield _filled(results, start)
    for key, array in results.items():
        if array is not None:
            for number in OTHER:
                filled = _filled(results, 0)
                present(filled[key]).reshape(-1)[0] = number
                yield filled


def _filled(results: KeyedArrays, start: int) -> KeyedArrays:
    """Return results with finite numbers, from this one on, and in each array from one later than in that before."""
    filled: KeyedArrays = {}
    for first, (key, array) in enumerate(results.items(), start):
        if array is None:
            filled[key] = None
            continue
        limits = np.finfo(array.dtype)
        numbers = np.clip(np.roll(FINITE, -first), float(limits.min), float(limits.max))
        filled[key] = np.resize(numbers, array.shape).astype(array.dtype)
    return filled


def reads_alike(frame: Frame, body: bytes, leaves_of: LeavesOf) -> bool:
    """Return whether a frame finds in bodies like this one what the ordinary way reads in them, or nothing."""
    head = Head("", b"")
    head.add(body, frame)
    for other in _bodies(frame, body):
        found = head.find(other)
        if isinstance(found, Unknown) or found[1] is None:
            continue
        try:
            leaves = leaves_of(other)
        except PullbackError:
            return False
        for column, leaf in zip(found[1], leaves, strict=True):
            if joined([column]).astype(leaf.dtype).tobytes() != leaf.tobytes():
                return False
    return True


def _bodies(frame: Frame, body: bytes) -> Iterator[bytes]:
    """Yield bodies of the same frame with the numbers of the edges, all of them in each list, or in each range."""
    if isinstance(frame, RangeFrame):
        tensors: KeyedArrays = {(each, ""): np.empty(frame.size, frame.call.dtype) for each in range(len(frame.ranges))}
        for filled in results_at_edges(tensors):
            yield bodies.fill(body, frame.ranges, [present(each) for each in filled.values()])
    elif isinstance(frame, ListFrame):
        size, count = frame.size, frame.size * len(frame.shapes)
        for start in range(0, len(TEXTS), size):
            texts = [TEXTS[(start + each) % len(TEXTS)] for each in range(count)]
            yield bodies.join(frame.text, bodies.nested(texts, frame.shapes))
        for first, text in product(range(0, count, size), LARGE):
            texts = [*[b"0.5"] * first, text, *[b"0.5"] * (count - first - 1)]
            yield bodies.join(frame.text, bodies.nested(texts, frame.shapes))
