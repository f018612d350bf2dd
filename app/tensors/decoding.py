"""Decoding of a request's tensors in any format: arrays from a binary body, or their JSON forms."""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from app.errors import Loc
from app.tensors import json
from app.tensors.dtypes import DTYPES

FIELDS = ("inputs", "cotangents", "tangents", "vectors")
"""The fields of a native request that have tensors by name."""


def decode(value: Any, dtype: str, loc: Loc) -> NDArray[Any]:
    """Return ``value`` as a C-contiguous array of exactly ``dtype``; it may be read-only.

    Raises ``Unprocessable`` for an array of another dtype, and whatever ``json.decode`` raises.
    """
    if not isinstance(value, np.ndarray):
        return json.decode(value, dtype, loc)
    array = cast("NDArray[Any]", value)
    if array.dtype.name != dtype:
        json.refuse_cast(array.dtype.name, DTYPES[dtype], loc)
    return array if array.flags.aligned else array.copy()
