"""Clipping, at its bounds and where a norm is 0 or overflows."""

import numpy as np
import pytest

from app.errors import Unprocessable
from ops import MODES, Example
from tests.ops.cases import REGISTRY, Case, answer, eps

OP = REGISTRY.ops["clip_gradient"]
every_mode = pytest.mark.parametrize("mode", MODES)


def clipped(dy, mode="graph", dtype="float64", **attrs):
    case = Case(OP, Example("", {"x": [0.0] * len(dy)}, attrs))
    point = case.point(dtype, mode)
    return answer(point, "vjp", {"cotangents": {"y": np.asarray(dy, dtype)}})["gradients/x"]


@every_mode
def test_by_value(mode) -> None:
    found = clipped([-2.0, -0.5, 0.25, 0.5, np.inf], mode, low=-1.0, high=0.5)
    assert found.tolist() == [-1.0, -0.5, 0.25, 0.5, 0.5]


@every_mode
def test_by_norm(mode) -> None:
    np.testing.assert_allclose(clipped([3.0, 4.0], mode, by="norm", limit=1.0), [0.6, 0.8], rtol=4 * eps("float64"))
    assert clipped([3.0, 4.0], mode, by="norm", limit=5.0).tolist() == [3.0, 4.0]
    assert clipped([0.0, 0.0], mode, by="norm", limit=1.0).tolist() == [0.0, 0.0]
    assert clipped([3.0, 4.0], mode, by="norm", limit=0.0).tolist() == [0.0, 0.0]


@every_mode
def test_by_norm_where_squares_overflow(mode) -> None:
    found = clipped([3e30, 4e30], mode, "float32", by="norm", limit=1.0)
    np.testing.assert_allclose(found, [0.6, 0.8], rtol=8 * eps("float32"))


@every_mode
def test_the_second_order_of_zero_is_finite(mode) -> None:
    case = Case(OP, Example("", {"x": [1.0, 2.0]}, {"by": "norm"}))
    found = answer(case.point(mode=mode), "hvp", {"cotangents": {"y": np.zeros(2)}, "vectors": {"x": np.ones(2)}})
    assert not np.any(found["products/x"]) or isinstance(found["products/x"], str)


def test_bounds_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(Unprocessable, match="low is above high"):
        clipped([1.0], low=1.0, high=0.0)
