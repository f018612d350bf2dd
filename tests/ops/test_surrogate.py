"""Every f forward with every g backward, in both forms; eagerly, because every pair would need its own traces."""

import numpy as np
import pytest

from app.autodiff.absent import Absent
from ops import MODES, Example
from ops.surrogate import TABLE
from tests.gradcheck.checking import failed, report
from tests.ops.cases import REGISTRY, Case, answer

OP = REGISTRY.ops["surrogate"]


def case(forward, backward, form, x=(-2.75, -0.75, 0.25, 1.75)):
    attrs = {"forward": forward, "backward": backward, "form": form}
    return Case(OP, Example("", {"x": list(x)}, attrs))


def checked(one: Case):
    """Return the report on both orders at the numbers of a case."""
    options = {"checks": ["derivative", "second"], "modes": ("eager",), "dtypes": ("float64",)}
    return report(OP, inputs=one.example.inputs, attrs=one.example.attrs, **options)


@pytest.mark.slow
@pytest.mark.parametrize("backward", TABLE)
def test_the_additive_form_has_the_value_of_f_and_the_gradient_of_g(backward) -> None:
    for forward in TABLE:
        one = case(forward, backward, "additive")
        y = answer(one.point(mode="eager"), "forward", {})["outputs/y"]
        x = np.asarray(one.example.inputs["x"])
        # f - g and g + (f - g) each round once.
        f, g = TABLE[forward].numpy(x), TABLE[backward].numpy(x)
        np.testing.assert_allclose(y, f, rtol=4e-16, atol=2.0**-52 * (np.abs(f) + np.abs(g)).max())
    assert failed(checked(one)) == []


@pytest.mark.slow
@pytest.mark.parametrize("forward", TABLE)
def test_the_multiplicative_form_has_the_scaled_gradient_of_g(forward) -> None:
    assert failed(checked(case(forward, "sigmoid", "multiplicative"))) == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backward", ["relu", "step", "square"])
def test_the_multiplicative_form_is_nan_where_g_is_0_or_nan(backward, mode) -> None:
    one = case("tanh", backward, "multiplicative", (0.0, -0.0, 2.0, "NaN"))
    found = answer(one.point(mode=mode), "vjp", {})
    for key in ("outputs/y", "gradients/x"):
        assert np.isnan(found[key]).tolist() == [True, True, False, True], key


@pytest.mark.parametrize("backward", ["sign", "round", "step"])
def test_a_piecewise_constant_g_stops_the_gradient(backward) -> None:
    found = answer(case("identity", backward, "additive").point(mode="eager"), "gradients", {})
    assert not isinstance(found["gradients/0/x"], Absent)
    assert not found["gradients/0/x"].any()
