"""Ops whose caller chooses the mechanism: all mechanisms give the same results, to the last bit, in every mode."""

import numpy as np
import pytest

from app.autodiff.absent import Absent
from ops import MODES, Example
from tests.ops.cases import REGISTRY, Case, answer, directions, kinds, used

NAMES = ("custom_gradient", "override_map", "stop_gradient")
X = [-1e30, -2.5, -1.0, -0.75, -1e-30, -0.0, 0.0, 0.5, 0.875, 1.0, 3.0, 1e30]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("op", [REGISTRY.ops["sign"], REGISTRY.ops["gradient_reversal"]], ids=lambda op: op.name)
def test_the_three_mechanisms_agree_bit_for_bit(op, mode) -> None:
    numbers = {"strength": 0.7} if "strength" in op.attrs.model_fields else {}
    results = []
    for name in NAMES:
        case = Case(op, Example(name, {"x": X}, {"mechanism": name, **numbers}))
        point = case.point("float32", mode)
        along = directions(point, np.random.default_rng(0))
        results.append(
            {k: v for kind in kinds(case) if kind != "vjp" for k, v in answer(point, kind, used(along, kind)).items()}
        )
    first, *others = results
    for other in others:
        assert set(other) == set(first)
        for key, value in first.items():
            assert bits(value) == bits(other[key]), key


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("dtype", "x"), [("float32", 1e-40), ("float64", 1e-310)])
def test_a_subnormal_number_has_the_sign_0_wherever_it_stands(dtype, x, name, mode) -> None:
    # The kernels treat whole vectors and the rest of a tensor differently.
    case = Case(REGISTRY.ops["sign"], Example(name, {"x": [x] * 9 + [-x] * 9}, {"mechanism": name}))
    found = answer(case.point(dtype, mode), "vjp", {})
    assert not found["outputs/y"].any()
    assert found["gradients/x"].all()


def bits(value):
    """Return the bytes of a result; a missing gradient and an exact zero, of either sign, are the same."""
    return b"" if isinstance(value, Absent) or not np.any(value) else value.tobytes()


@pytest.mark.parametrize("mode", MODES)
def test_the_reversal_scales_by_a_traced_number(mode) -> None:
    op = REGISTRY.ops["gradient_reversal"]
    for name in NAMES:
        for strength in (0.0, 0.25, 3.0):
            example = Example("", {"x": [1.0, -2.0]}, {"mechanism": name, "strength": strength})
            found = answer(Case(op, example).point("float32", mode), "vjp", {})
            assert found["outputs/y"].tolist() == [1.0, -2.0]
            assert found["gradients/x"].tolist() == [-strength, -strength]
