"""The eigenvalues of A + Aᵀ for a matrix A of each row."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from ops import UNCOMPILED, Array, Attrs, Example, Input, Tensor
from tests.gradcheck.wrong.making import BOTH, MATRIX, rows
from tests.rows.making import SQUARE


def row_eigenvalues(a: Tensor) -> Tensor:
    return tf.linalg.eigvalsh(a + tf.linalg.matrix_transpose(a))


def reference(a: Array) -> Array:
    return np.linalg.eigvalsh(a + np.swapaxes(a, -1, -2))


def singular(inputs: Mapping[str, Array], attrs: Attrs) -> bool:
    return bool((np.diff(reference(inputs["a"])) < 1e-3).any())


def sample(rng: np.random.Generator, dtype: str, attrs: Attrs) -> dict[str, Array]:
    """Draw matrices whose eigenvalues are apart."""
    small = rng.uniform(-0.25, 0.25, (3, 3, 3))
    return {"a": (small + np.diag([-2.0, 0.5, 3.0])).astype(dtype)}


OP = rows(
    row_eigenvalues,
    reference,
    inputs=[Input("a", BOTH, SQUARE)],
    dtypes=BOTH,
    out=MATRIX,
    modes=UNCOMPILED,
    singular=singular,
    sample=sample,
    examples=(Example("apart", {"a": [[[1.0, 0.25], [0.5, -2.0]], [[3.0, -0.5], [0.0, 1.0]]]}),),
)
