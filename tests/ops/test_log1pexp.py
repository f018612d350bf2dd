"""log(1 + eˣ), the stable op and the op with a declared second order, where the exponential overflows."""

import math

import numpy as np
import pytest

from ops import MODES
from tests.ops.cases import REGISTRY, Case, answer, eps, tiny

STABLE, DECLARED = REGISTRY.ops["log1pexp"], REGISTRY.ops["log1pexp2"]
DTYPES = ["float32", "float64", "float16", "bfloat16"]
every_mode = pytest.mark.parametrize("mode", MODES)
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def levels(op, x, dtype, mode):
    """Return y and its gradients of the orders 1 to 4, in float64; all of one shape, so that XLA compiles once."""
    padded = np.resize(np.asarray(x), 8)
    found = answer(Case(op, op.examples[0]).point(dtype, mode, {"x": padded}), "gradients", {}, 4).values()
    return [np.asarray(level, np.float64)[: len(x)] for level in found]


@every_dtype
@every_mode
def test_values_at_plus_and_minus_100(mode, dtype) -> None:
    y, dx, ddx = levels(STABLE, [100.0, -100.0], dtype, mode)[:3]
    assert [y[0], dx[0], ddx[0]] == [100.0, 1.0, pytest.approx(math.exp(-100), rel=1e-5, abs=tiny(dtype))]
    # e⁻¹⁰⁰ = 3.7e-44 is normal only in float64; in the other dtypes it is below the least normal number, and may be 0.
    for level in (y, dx, ddx):
        assert level[1] == pytest.approx(math.exp(-100), rel=1e-12 if dtype == "float64" else 0, abs=tiny(dtype))
        assert level[1] >= 0


@every_dtype
@every_mode
def test_no_order_has_a_nan_at_large_x(mode, dtype) -> None:
    x = [1e4, -1e4, 1e3, -1e3, 90.0, -90.0, 0.0]
    y, *slopes = levels(STABLE, x, dtype, mode)
    assert np.isfinite([y, *slopes]).all()
    assert y.tolist()[:4] == [1e4 if dtype != "bfloat16" else 9984.0, 0.0, 1e3, 0.0]
    assert slopes[0].tolist()[:4] == [1.0, 0.0, 1.0, 0.0]
    for level in slopes[1:]:
        assert level.tolist()[:4] == [0.0, 0.0, 0.0, 0.0]


@every_mode
def test_every_order_matches_its_formula(mode) -> None:
    """With s = σ(x): s, s(1 - s), s(1 - s)(1 - 2s), s(1 - s)(1 - 6s + 6s²), at numbers without cancellation."""
    x = np.array([-30.0, -4.0, -0.5, 0.75, 3.0])
    s = 1 / (1 + np.exp(-x))
    c = 1 / (1 + np.exp(x))
    expected = [np.log1p(np.exp(x)), s, s * c, s * c * (c - s), s * c * (1 - 6 * s * c)]
    # A dozen roundings, each a few units where XLA computes σ by tanh: in absolute terms, like σ(-30) then.
    for found, formula in zip(levels(STABLE, x, "float64", mode), expected, strict=True):
        np.testing.assert_allclose(found, formula, rtol=0, atol=16 * eps("float64") * 4)


@pytest.mark.parametrize("mode", ["graph", "eager", "v1"])
def test_small_values_keep_their_digits(mode) -> None:
    """Far to the left all of them are nearly eˣ, to relative precision, where a naive log(1 + eˣ) gives 0."""
    x = np.array([-20.0, -40.0, -300.0])
    e = np.exp(x)
    expected = [np.log1p(e), e / (1 + e), e / (1 + e) ** 2]
    for found, formula in zip(levels(STABLE, x, "float64", mode)[:3], expected, strict=True):
        np.testing.assert_allclose(found, formula, rtol=16 * eps("float64"))


@every_mode
def test_the_values_in_the_question(mode) -> None:
    _, dx, ddx, *_ = levels(DECLARED, [1.0, 100.0], "float32", mode)
    assert dx.astype(np.float32).tolist() == pytest.approx([0.7310586, 1.0], rel=2 * eps("float32"))
    assert ddx.astype(np.float32).tolist() == pytest.approx([-1.7182817, -math.inf], rel=2 * eps("float32"))
