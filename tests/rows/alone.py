"""Answers of ops that declare nothing about their rows: a service can neither join nor pad those.

Fixed numbers of rows make an answer independent of the load, but not right: x divided by the number of rows would be
divided by that of the padding. These answers may differ from others by rounding only.
"""

import json
from typing import Any, cast

import numpy as np

from app.tensors.dtypes import DTYPES
from ops import Array
from tests.http.native_client import array

# Differences from rounding, as a share of the largest number of a tensor and of the request: large numbers may cancel.
ROUNDING = {"float64": 1e-7, "float32": 1e-2}
NARROW = 0.25


def is_close(answer: tuple[int, bytes], alone: tuple[int, bytes], largest: float = 0.0) -> bool:
    """Return whether two answers have one status and, if both are JSON, the same numbers up to rounding.

    The request has numbers up to ``largest``.
    """
    (status, body), (expected, other) = answer, alone
    if status != expected:
        return False
    if status >= 400 or body[:1] != b"{":
        return True
    return _same(json.loads(body), json.loads(other), largest)


def _same(one: Any, other: Any, largest: float) -> bool:
    if isinstance(one, list):
        first, second = cast(list[Any], one), cast(list[Any], other)
        return len(first) == len(second) and all(_same(x, y, largest) for x, y in zip(first, second, strict=True))
    if not isinstance(one, dict):
        return one == other
    named, others = cast(dict[str, Any], one), cast(dict[str, Any], other)
    if named.keys() != others.keys():
        return False
    if "dtype" in named:
        return _near(array(named), array(others), largest)
    return all(_same(value, others[name], largest) for name, value in named.items())


def _near(one: Array, other: Array, largest: float) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    x, y = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(y)
    # Beside numbers that overflow, or whose products do, rounding decides what is infinite.
    may_overflow = largest**2 > DTYPES[one.dtype.name].high
    if not finite.all() or (may_overflow and not np.isfinite(x).all()):
        return bool((np.isfinite(x) == finite).mean() > 0.5)
    bound = ROUNDING.get(one.dtype.name, NARROW) * (1 + np.abs(y).max(initial=largest))
    return bool((np.abs(x - y) <= bound).all())
