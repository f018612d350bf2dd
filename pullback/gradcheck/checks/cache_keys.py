"""What a cache's key may be, from points that have the same answer as another one, and points that have not."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from pullback.dtypes import Array

DECIMALS, DIGITS = range(13), range(3, 13)
NARROWER = ("float32", "float16")
MOST_NAMED = 2
MOST = 4096
"""The most numbers of an input whose digits are compared."""


class Seen(NamedTuple):
    """The inputs of a point, and whether its answer is that of the first one, bit for bit."""

    inputs: Mapping[str, Array]
    is_same: bool


def likely_key(first: Mapping[str, Array], seen: Sequence[Seen]) -> str:
    """Return what key explains all that was seen, such as "rounds inputs to 6 decimals", or "" for none."""
    if all(each.is_same for each in seen):
        return "lacks the inputs"
    found = (name for name, key in _keys() if all(_agrees(key, first, each) for each in seen))
    return " or ".join(islice(found, MOST_NAMED))


def _keys() -> Iterator[tuple[str, Callable[[Array], Array]]]:
    """Yield the keys that are tried, those first that programs have most often."""
    for decimals in DECIMALS:
        yield f"rounds inputs to {decimals} decimals", lambda x, n=decimals: np.round(x, n)
    for dtype in NARROWER:
        yield f"has inputs in {dtype}", lambda x, dtype=dtype: x.astype(dtype)
    for digits in DIGITS:
        yield f"has {digits} digits of each input", lambda x, n=digits: _to_digits(x, n)


def _agrees(key: Callable[[Array], Array], first: Mapping[str, Array], seen: Seen) -> bool:
    pairs = ((first[name], x) for name, x in seen.inputs.items() if not np.array_equal(first[name], x))
    return all(np.array_equal(key(one), key(other)) for one, other in pairs) == seen.is_same


def _to_digits(x: Array, digits: int) -> Array:
    return np.array([float(f"{number:.{digits}g}") for number in np.ravel(x)[:MOST]])
