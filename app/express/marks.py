"""Marks: numbers that show where in a body, or in a response, an element of a tensor is."""

import numpy as np
from numpy.typing import NDArray

from app.autodiff import padding

# The distance between the marks of two tensors, which is also the most numbers of each. A mark is an integer plus
# ``RAGGED``: its float32 has another text than the same number in float64, so the text shows the dtype.
APART, RAGGED = padding.SHARED, 0.1
SIGNS = (1, -1)


def marks(size: int, number: int, sign: int) -> NDArray[np.float64]:
    """Return marks for the tensor with this number: they differ from those of all others."""
    return sign * (np.arange(size, dtype=np.float64) + (APART * number + RAGGED))
