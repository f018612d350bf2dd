"""Colorings of a sparse matrix: lines of one color are computed by one product.

Each algorithm is greedy, in the order of the lines, with a set of colors as the bits of an integer. They follow
Gebremedhin, Manne and Pothen, "What color is your Jacobian?" (2005), and for star colorings Gebremedhin, Tarafdar,
Manne and Pothen, "New acyclic and star coloring algorithms" (2007).
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from app.runtime.cancellation import Checkpoint

Index = NDArray[np.intp]

# How many lines are colored between two checkpoints.
_LINES = 1 << 12
# The most bits of the sets of colors of all lines.
_BITS = 1 << 30


class ManyColors(Exception):
    """A coloring has more colors than its sets may have bits: more products than anyone waits for."""


def distance_two(line: Index, other: Index, lines: int, others: int, checkpoint: Checkpoint) -> Index:
    """Return a color of each of the ``lines`` such that two lines of one color have no nonzero in common.

    The nonzeros are at ``line`` and ``other``, sorted by ``line``. Raises ``ManyColors``.
    """
    colors, taken, most = list[int](), [0] * others, _most(others)
    for near in _neighbours(line, other, lines, checkpoint):
        forbidden = 0
        for j in near:
            forbidden |= taken[j]
        free = _lowest_free(forbidden, most)
        colors.append(free.bit_length() - 1)
        for j in near:
            taken[j] |= free
    return np.array(colors, np.intp)


def star(row: Index, column: Index, size: int, checkpoint: Checkpoint) -> Index:
    """Return a star coloring of a symmetric matrix: each nonzero is alone of its color in its column, or in its row.

    The nonzeros are sorted by row. Neighbours have different colors, and a path of four lines has three. Any two
    colored neighbours of a line that has no color yet differ in color, so only paths that the new line ends remain.
    Raises ``ManyColors``.
    """
    most = _most(size)
    # Those with the most neighbours first: all that are next to a line that has no color yet have different ones.
    order = np.argsort(-np.bincount(row, minlength=size), kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(size)
    row, column = rank[row], rank[column]
    by_row = np.lexsort((column, row))
    colors, near = list[int](), [0] * size
    # For each line: its neighbours by color, and the colors of the neighbours that touch another line of its color.
    by_color, hubs = [dict[int, list[int]]() for _ in range(size)], [0] * size
    for v, every in enumerate(_neighbours(row[by_row], column[by_row], size, checkpoint)):
        neighbours, forbidden = [w for w in every if w != v], near[v]
        for w in neighbours:
            forbidden |= hubs[w] if w < v else near[w]
        free = _lowest_free(forbidden, most)
        color = free.bit_length() - 1
        colors.append(color)
        for x in neighbours:
            near[x] |= free
            same = by_color[x].setdefault(color, [])
            same.append(v)
            if x < v and len(same) > 1:
                for w in same if len(same) == 2 else (v,):  # noqa: PLR2004 - the second makes the first one of two
                    hubs[w] |= 1 << colors[x]
    return np.array(colors, np.intp)[rank]


def _most(lines: int) -> int:
    """Return how many colors sets of so many lines may have."""
    return _BITS // max(1, lines)


def _lowest_free(forbidden: int, most: int) -> int:
    """Return the lowest bit that is not set; raise ``ManyColors`` if it is not one of ``most``."""
    free = ~forbidden & (forbidden + 1)
    if free.bit_length() > most:
        raise ManyColors
    return free


def _neighbours(line: Index, other: Index, lines: int, checkpoint: Checkpoint) -> Iterator[list[int]]:
    """Yield the positions of the nonzeros of each line."""
    for start in range(0, lines, _LINES):
        checkpoint()
        stop = min(lines, start + _LINES)
        bounds = np.searchsorted(line, np.arange(start, stop + 1))
        first, found = int(bounds[0]), other[bounds[0] : bounds[-1]].tolist()
        ends = (bounds - first).tolist()
        for a, b in pairwise(ends):
            yield found[a:b]
