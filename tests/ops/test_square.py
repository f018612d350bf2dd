"""Square: the first example of the documentation."""

import pytest

from ops import MODES
from tests.ops.cases import REGISTRY, Case, answer

SQUARE = REGISTRY.ops["square"]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("mode", MODES)
def test_the_matrix_of_the_guide(mode, dtype) -> None:
    found = answer(Case(SQUARE, SQUARE.examples[0]).point(dtype, mode), "gradients", {})
    assert found["gradients/0/x"].tolist() == [[2, 4, 6], [8, 10, 12]]
    assert found["gradients/1/x"].tolist() == [[2, 2, 2], [2, 2, 2]]
