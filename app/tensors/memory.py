"""Memory aligned for TensorFlow, which uses an aligned array in place and copies any other."""

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64


def aligned(size: int, lead: int = 0) -> NDArray[np.uint8]:
    """Return ``size`` uninitialised bytes; those after the first ``lead`` begin at a multiple of ``ALIGNMENT``."""
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -(raw.ctypes.data + lead) % ALIGNMENT
    return raw[start : start + size]
