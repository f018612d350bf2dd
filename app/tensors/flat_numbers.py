"""The numbers and the shape of tensors from the text of their runs, without the positions that errors need."""

from collections.abc import Sequence
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import orjson
from numpy.typing import NDArray

from app.tensors.casting import NUMBERS
from app.tensors.runs import read_run

FlatNumbers: TypeAlias = list[float] | NDArray[np.float64]
Shape: TypeAlias = tuple[int, ...]

# From this size on, numbers become an array at once; below, a Python object per number costs less.
LONG = 1 << 12


def read_lists(texts: Sequence[bytes | bytearray]) -> tuple[FlatNumbers, tuple[Shape, ...]] | None:
    """Return the numbers of all runs, and the shape of each; ``None`` if one of them is not a tensor of numbers."""
    numbers, shapes = list[float](), list[Shape]()
    try:
        if sum(map(len, texts)) >= LONG:
            tensors = [read_run(text, 0, len(text)).tensor() for text in texts]
            values = [tensor.values for tensor in tensors]
            return values[0] if len(values) == 1 else np.concatenate(values), tuple(tensor.shape for tensor in tensors)
        for text in texts:
            level: list[Any] = orjson.loads(text)
            shape: Shape = (len(level),)
            while level and isinstance(level[0], list):
                if set(map(type, level)) != {list} or len(lengths := set(map(len, level))) != 1:
                    return None
                shape += (lengths.pop(),)
                level = list(chain.from_iterable(level))
            if not NUMBERS.issuperset(map(type, level)):
                return None
            numbers += level
            shapes.append(shape)
    except (ValueError, TypeError, RuntimeError):  # from the parsers, and for lists that are no tensors
        return None
    return numbers, tuple(shapes)
