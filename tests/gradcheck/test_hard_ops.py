"""The hard ops are right: their values agree with their references, and their gradients with true ones in 60 digits."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from mpmath import mp

from app.gradcheck import rounding
from app.runtime.modes import Key
from ops import FLOATS, Array, Example, many
from tests.gradcheck.hard import HARD
from tests.gradcheck.hard.exact import Hard, Where, collected, off, true_gradient, true_values
from tests.gradcheck.hard.making import elementwise

CASES = {
    f"{name}-{example.name}": (hard, example)
    for name, hard in HARD.items()
    for example in hard.op.examples
    if hard.op.reference is not None
}
WIDE = {name: case for name, case in CASES.items() if case[0].exact is not None and "float64" in case[0].op.dtypes}


def inputs_of(hard: Hard, example: Example, dtype: str) -> dict[str, Array]:
    slots = {slot.name: hard.op.dtype_of(slot, dtype) for slot in hard.op.inputs}
    return {name: np.asarray(example.inputs[name], tf.as_dtype(slot).as_numpy_dtype) for name, slot in slots.items()}


def attrs_of(hard: Hard, example: Example, dtype: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the attributes as Python values, and as the op gets them."""
    attrs = hard.op.attrs.model_validate(dict(example.attrs))
    numbers = {name: tf.constant(value, dtype) for name, value in attrs.numbers().items()}
    return attrs.model_dump(), {**attrs.static(), **numbers}


def widest(hard: Hard) -> str:
    return min((dtype for dtype in hard.op.dtypes if dtype in FLOATS), key=rounding.eps)


@pytest.mark.slow
@pytest.mark.parametrize(("hard", "example"), CASES.values(), ids=CASES)
def test_the_values_are_those_of_the_reference(hard: Hard, example: Example) -> None:
    dtype = widest(hard)
    inputs, (plain, attrs) = inputs_of(hard, example, dtype), attrs_of(hard, example, dtype)
    found = many(hard.op.function(*map(tf.constant, inputs.values()), **attrs))
    wide = [x if x.dtype.kind in "iub" else x.astype(np.float64) for x in inputs.values()]
    with np.errstate(all="ignore"):
        expected = many(hard.op.reference(*wide, **plain))
    tolerance = max(1e-6, 256 * rounding.eps(dtype))
    for y, should in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(y, np.float64), should, tolerance, tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(("hard", "example"), WIDE.values(), ids=WIDE)
def test_the_gradients_are_the_true_ones(hard: Hard, example: Example) -> None:
    inputs, (plain, attrs) = inputs_of(hard, example, "float64"), attrs_of(hard, example, "float64")
    live = [slot.name for slot in hard.op.inputs if hard.op.is_differentiable(slot, "float64")]
    tensors = {name: tf.constant(x) for name, x in inputs.items()}
    with tf.GradientTape() as tape:
        tape.watch([tensors[name] for name in live])
        ys = many(hard.op.function(*tensors.values(), **attrs))
    dys = {
        slot.name: np.linspace(0.5, 1.5, int(tf.size(y))).reshape(y.shape)
        for slot, y in zip(hard.op.outputs, ys, strict=True)
    }
    found: Any = tape.gradient(ys, [tensors[name] for name in live], [tf.constant(dy) for dy in dys.values()])
    expected = true_gradient(hard, inputs, dys, plain)
    for slot in hard.op.inputs:
        if slot.name in live:
            away = np.atleast_1d(~np.isin(inputs[slot.name], slot.poles))
            dx, should = np.asarray(found[live.index(slot.name)]), expected[slot.name]
            assert (relative_errors(dx, should, hard)[away] <= 1e-6).all(), (slot.name, inputs, dx, should)


def relative_errors(dx: Array, should: Array, hard: Hard) -> Array:
    """Return the errors relative to each number of an elementwise op, else to the largest number.

    A number that is nearly 0 beside the others counts as larger: σ'(40), computed as y (1 - y), is rightly 0.
    """
    # NumPy makes a number of an array without axes.
    dx, should = np.atleast_1d(dx), np.atleast_1d(should)
    errors = np.abs(np.vectorize(mp.mpf, otypes=[object])(dx) - should)
    sizes = np.abs(should)
    most = sizes.max()
    scale = sizes + mp.mpf("1e-9") * most if hard.op.batching == "elementwise" else most
    return (errors / (scale + mp.mpf("1e-45"))).astype(np.float64)


def test_a_name_appears_once() -> None:
    hard = HARD["chirp"]
    assert len(HARD) >= 80
    with pytest.raises(ValueError, match="two ops are named 'chirp'"):
        collected(hard, HARD["wave"], hard)


def test_true_values_are_those_of_closed_forms() -> None:
    """z = x³ y at a point, at both orders."""
    op = elementwise("cube", lambda x, y: x * x * x * y, lambda x, y: x**3 * y, {"x": [2.0], "y": [5.0]})
    hard = Hard(op, lambda x, y: x**3 * y)
    where = Where(
        {"x": np.array([2.0]), "y": np.array([5.0])},
        {"y": np.array([0.5])},
        {"x": np.array([3.0]), "y": np.array([-1.0])},
        {},
    )
    values = true_values(hard, where)
    expected = {
        ("outputs", "y"): 40,
        ("gradients", "x"): 30,
        ("gradients", "y"): 4,
        ("slots", "y"): 172,
        ("products", "x"): 84,
        ("products", "y"): 18,
    }
    assert {key: float(value[0]) for key, value in values.items()} == pytest.approx(expected, rel=1e-15)
    exact: dict[Key, Array] = {key: np.array([value], float) for key, value in expected.items()}
    assert max(ratio.max() for ratio in off(hard, where, exact, "float64").values()) < 1e-3
    wrong: dict[Key, Array] = {**exact, ("gradients", "x"): np.array([30.003])}
    assert off(hard, where, wrong, "float64")["gradients", "x"][0] > 1e9
