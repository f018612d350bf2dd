"""Tensors of a request, whatever the format: arrays from a binary body, or their forms in JSON."""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from app.errors import Loc
from app.tensors import json
from app.tensors.dtypes import DTYPES


def decode(value: Any, dtype: str, loc: Loc) -> NDArray[Any]:
    """Return the tensor that ``value`` stands for, C-contiguous and of exactly ``dtype``; it may be read-only.

    Raises ``Unprocessable`` for an array of another dtype, and what ``json.decode`` raises.
    """
    if not isinstance(value, np.ndarray):
        return json.decode(value, dtype, loc)
    array = cast("NDArray[Any]", value)
    if array.dtype.name != dtype:
        json.refuse_cast(array.dtype.name, DTYPES[dtype], loc)
    return array if array.flags.aligned else array.copy()
