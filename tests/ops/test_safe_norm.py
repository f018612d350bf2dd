"""The norm, at 0 and where squares overflow or underflow."""

import numpy as np
import pytest

from ops import MODES
from tests.ops.cases import REGISTRY, Case, answer, eps

OP = REGISTRY.ops["safe_norm"]
every_mode = pytest.mark.parametrize("mode", MODES)


def point(x, dtype="float64", mode="graph"):
    return Case(OP, OP.examples[0]).point(dtype, mode, {"x": x})


@every_mode
def test_every_order_is_0_at_0(mode) -> None:
    at = point([[0.0, 0.0], [3.0, 4.0]], mode=mode)
    found = answer(at, "gradients", {})
    assert found["gradients/0/x"][0].tolist() == [0.0, 0.0]
    np.testing.assert_allclose(found["gradients/0/x"][1], [0.6, 0.8], rtol=8 * eps("float64"))
    assert found["gradients/1/x"][0].tolist() == [0.0, 0.0]
    products = answer(at, "hvp", {"vectors": {"x": np.array([[1.0, 2.0], [1.0, 2.0]])}})["products/x"]
    # (v - u u·v) / |x| with u = (0.6, 0.8), u·v = 2.2.
    np.testing.assert_allclose(products, [[0, 0], [-0.064, 0.048]], rtol=0, atol=16 * eps("float64"))


@every_mode
@pytest.mark.parametrize("scale", [1e30, 1e-30])
def test_squares_neither_overflow_nor_underflow(scale, mode) -> None:
    found = answer(point([[3 * scale, 4 * scale], [1.0, 0.0]], "float32", mode), "vjp", {})
    np.testing.assert_allclose(found["outputs/y"], [5 * scale, 1.0], rtol=8 * eps("float32"))
    np.testing.assert_allclose(found["gradients/x"], [[0.6, 0.8], [1.0, 0.0]], rtol=8 * eps("float32"))


@every_mode
def test_an_infinite_row_has_no_direction(mode) -> None:
    found = answer(point([[np.inf, 1.0], [3.0, 4.0]], mode=mode), "vjp", {})
    assert found["outputs/y"].tolist() == [np.inf, 5.0]
    assert np.isnan(found["gradients/x"][0, 0])
    assert np.isfinite(found["gradients/x"][1]).all()
