"""Memory as TensorFlow takes it: where an array begins at such an address it is used as it lies, and else copied."""

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64


def aligned(size: int, lead: int = 0) -> NDArray[np.uint8]:
    """Return ``size`` bytes, not set to anything; what follows the first ``lead`` is at a multiple of ``ALIGNMENT``."""
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -(raw.ctypes.data + lead) % ALIGNMENT
    return raw[start : start + size]
