"""What several pages of the corpus share."""

import numpy as np

from ops import Array, Attrs

SQUARE = ("N", "M", "M")


def apart(rng: np.random.Generator, dtype: str, attrs: Attrs) -> dict[str, Array]:
    """Draw rows of numbers that are at least 1/2 apart, so that small changes keep their order."""
    count, width = (int(n) for n in rng.integers(2, 6, 2))
    order = rng.permuted(np.broadcast_to(np.arange(width), (count, width)), axis=-1)
    return {"x": (order - width / 2 + rng.uniform(0, 0.5, (count, width))).astype(dtype)}
