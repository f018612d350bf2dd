"""What several ops of the corpus share."""

from functools import partial

import numpy as np

from ops import Array, Attrs
from tests.gradcheck.wrong.making import BOTH, rows

SQUARE = ("N", "M", "M")
rows_of = partial(rows, dtypes=BOTH)
seeming = partial(rows, reference=None, dtypes=BOTH)


def apart(rng: np.random.Generator, dtype: str, attrs: Attrs) -> dict[str, Array]:
    """Draw rows of numbers that are at least 1/2 apart, so that small changes keep their order."""
    count, width = (int(n) for n in rng.integers(2, 6, 2))
    order = rng.permuted(np.broadcast_to(np.arange(width), (count, width)), axis=-1)
    return {"x": (order - width / 2 + rng.uniform(0, 0.5, (count, width))).astype(dtype)}
