"""Correct ops pass: every registered op, and functions on which other checkers raise false alarms."""

import numpy as np
import pytest
import tensorflow as tf

from ops import FLOATS, Claim, Example, Input, Op, Output, Surrogate, custom_gradient, discover
from tests.gradcheck.checking import entries, failed, report

REGISTRY = discover()
# ``make trust`` runs many more. This one once raised false alarms.
SEED = 22
# The checks that depend on the seed: tracing and compiling do not.
SEEDED = ["derivative", "second", "linearity", "adjoint", "symmetry", "dtypes", "finite", "batching", "determinism"]


# With formulas, a surrogate, rows and in C++. ``make trust`` runs the others too.
OF_EACH_KIND = ("log1pexp", "matvec", "relu", "round_ste", "zero_out_indexed")


@pytest.mark.parametrize(
    "op",
    [
        pytest.param(op, id=name, marks=pytest.mark.slow if name in OF_EACH_KIND else pytest.mark.thorough)
        for name, op in REGISTRY.ops.items()
    ],
)
def test_every_registered_op_passes(op: Op) -> None:
    document = report(op, seed=SEED)
    assert failed(document) == [], [entry["sentence"] for entry in document["checks"] if entry["verdict"] == "fail"]
    assert document["verdict"] == "pass"


def nasty(function, xs, dtypes=FLOATS, **changes) -> Op:
    fields = {
        "name": "nasty",
        "summary": "right",
        "doc": __doc__,
        "function": function,
        "reference": None,
        "inputs": (Input("x", dtypes),),
        "outputs": (Output("y", dtypes),),
        "mechanism": "custom_gradient",
        "source": "a test",
        "batching": "elementwise",
        "examples": (Example("nasty", {"x": xs}),),
    }
    return Op(**(fields | changes))


def fast_sine(x):
    return tf.sin(1000 * x)


def within(x):
    """Reject numbers outside of the declared domain, as a table does."""
    tf.debugging.assert_less_equal(tf.abs(x), tf.cast(4, x.dtype))
    return tf.sqrt(tf.maximum(5 - x * x / 4, 0))


def straight_through(value):
    return custom_gradient(value, lambda x, dy: dy)


THROUGH = {"claim": lambda attrs: Claim(Surrogate(lambda primals, at: (primals[0],)))}
SINGLE, WIDE = ("float32",), ("float64",)
NASTY = {
    "tanh to 8 in float32": nasty(tf.tanh, np.linspace(-8, 8, 33).tolist(), SINGLE),
    "tanh to 8": nasty(tf.tanh, np.linspace(-8, 8, 33).tolist()),
    "x² at 5000 in float32": nasty(tf.square, [5000.0, -5000.0, 4999.5], SINGLE),
    "x² at 5000": nasty(tf.square, [5000.0, -5000.0, 4999.5], ("float32", "float64")),
    "log at 1e-4": nasty(tf.math.log, [1e-4, 2e-4, 1.0]),
    "log at 1e-4 in float32": nasty(tf.math.log, [1e-4, 2e-4, 1.0], SINGLE),
    "sqrt at 1e-8": nasty(tf.sqrt, [1e-8, 1e-6, 4.0]),
    "sqrt at 1e-8 in float32": nasty(tf.sqrt, [1e-8, 1e-6, 4.0], SINGLE),
    "sin(1000x)": nasty(fast_sine, np.linspace(-2, 2, 41).tolist()),
    "sin(1000x) in float32": nasty(fast_sine, np.linspace(-2, 2, 41).tolist(), SINGLE),
    # One number in thirty looks wrong until it is estimated again with smaller steps.
    "sin(100x) in float32": nasty(lambda x: tf.sin(100 * x), np.linspace(0.01, 3, 2001).tolist(), SINGLE),
    "a function that rejects numbers outside of its domain": nasty(
        within,
        [3.999, -3.9, 0.5, 2.0],
        WIDE,
        inputs=(Input("x", WIDE, ("N",), domain=(-4.0, 4.0)),),
        outputs=(Output("y", WIDE, ("N",)),),
        batching="none",
        modes=("graph", "eager"),
    ),
    "tan beside its pole": nasty(tf.tan, [1.5707963, 1.570796326, 1.5707963267948], WIDE),
    "1/x at tiny numbers": nasty(lambda x: 1 / x, [1e-300, 1e-10, 1e-3], WIDE),
    "a spike": nasty(lambda x: 1 / (1e-12 + x * x), [0.0, 1e-7, 1e-5], WIDE),
    "a power at tiny numbers": nasty(lambda x: x**0.3, [1e-300, 1e-12, 1e-6], WIDE),
    "sin(10000x)": nasty(lambda x: tf.sin(1e4 * x), np.linspace(-2, 2, 41).tolist(), WIDE),
    "a wave finer than the steps": nasty(lambda x: tf.sin(x) + 1e-7 * tf.sin(1e9 * x), [0.0], WIDE),
    "digits beyond the eighth cut off, straight through": nasty(
        custom_gradient(lambda x: tf.round(tf.sin(x) * 1e8) / 1e8, lambda x, dy: dy * tf.cos(x)), [0.3, -1.2, 2.0], WIDE
    ),
    "exp at 80": nasty(tf.exp, [80.0, -80.0, 1.0], ("float32", "float64")),
    "exp at 80 in float32": nasty(tf.exp, [80.0, -80.0, 1.0], SINGLE),
    "relu at 0": nasty(tf.nn.relu, [0.0, -1e-6, 1e-6, 2.0]),
    "abs at 0": nasty(tf.abs, [0.0, -1e-6, 1e-6, 2.0]),
    "abs at 0 alone": nasty(tf.abs, [0.0]),
    "floor, straight through": nasty(straight_through(tf.floor), [0.5, 1.0, -2.0, 2.25], **THROUGH),
    "round, straight through": nasty(straight_through(tf.round), [0.5, 1.0, -2.5, 2.25], **THROUGH),
    "sigmoid far out": nasty(tf.sigmoid, [-40.0, -20.0, 20.0, 40.0]),
    "softplus far out": nasty(tf.math.softplus, [-40.0, 40.0, 90.0]),
    "expm1 at 1e-10": nasty(tf.math.expm1, [1e-10, -1e-10, 1e-3]),
    "erf": nasty(tf.math.erf, [0.0, 1.0, 4.0], ("float32", "float64")),
    # Scaled by 2^-20, what its second order is computed from is smaller than the smallest normal number.
    "the tail of a sharp sigmoid": nasty(lambda x: tf.sigmoid(1e4 * x), [-0.0698, 0.5], WIDE),
    "a bump": nasty(lambda x: tf.exp(-1 / (x * x)), [0.05, 0.2, 1.0], ("float32", "float64")),
}
# One for each reason of a false alarm: noise, a wave, a jump, a kink, a flat start, an underflow.
OFTEN = (
    "x² at 5000 in float32",
    "sin(1000x)",
    "floor, straight through",
    "abs at 0",
    "a bump",
    "the tail of a sharp sigmoid",
    "tan beside its pole",
)


@pytest.mark.parametrize(
    "op",
    [
        pytest.param(op, id=name, marks=pytest.mark.slow if name in OFTEN else pytest.mark.thorough)
        for name, op in NASTY.items()
    ],
)
def test_a_nasty_function_does_not_fail(op: Op) -> None:
    (example,) = op.examples
    for seed in range(3):
        document = report(op, inputs=example.inputs, seed=seed, modes=("graph",), checks=SEEDED)
        # At the extremes of a dtype, some derivatives are infinite by nature.
        assert set(failed(document)) <= {"finite"}, document["checks"]


def test_a_point_without_a_derivative_is_inconclusive_and_says_why() -> None:
    cases = {
        "kink": nasty(tf.nn.relu, [0.0]),
        "jump": nasty(straight_through(tf.sign), [0.0]),
        "not finite": nasty(tf.math.log, [0.0]),
    }
    for reason, op in cases.items():
        (example,) = op.examples
        document = report(op, inputs=example.inputs, checks=["derivative"])
        assert document["verdict"] == "inconclusive"
        (entry,) = entries(document, "derivative", "inconclusive")
        assert entry["inconclusive"] == {reason: 1}
        assert f"cannot be compared with the numeric derivative of forward at 1 point ({reason})" in entry["sentence"]


@pytest.mark.parametrize("slot", [{"domain": (0.1, 2.0)}, {"domain": (0.0, 2.0)}, {"poles": (0.0,)}, {}])
def test_an_infinite_gradient_that_no_derivative_contradicts_is_right(slot) -> None:
    """The root of 0 is 0 and its slope infinite, whether the op declares its domain, its pole, or neither."""
    op = nasty(tf.sqrt, [1.0, 4.0], inputs=(Input("x", FLOATS, **slot),))
    assert failed(report(op, checks=["finite"])) == []


def test_a_wrong_slope_beside_a_kink_is_not_excused_by_it() -> None:
    """A kink says nothing about its neighbours."""

    def halved(x, dy):
        return tf.where(x > 0, dy / 2, tf.zeros_like(dy))

    document = report(nasty(custom_gradient(tf.nn.relu, halved), [0.0]), inputs={"x": [0.0, 1e-6, 1.0]})
    assert "derivative" in failed(document)
    (entry,) = entries(document, "derivative")
    assert entry["inconclusive"] == {"kink": 1}
    assert "2 of 3 points wrong: all are 0.5 times" in entry["sentence"]


@pytest.mark.share(2)
@pytest.mark.parametrize("dtype", FLOATS)
def test_an_op_of_one_dtype_is_checked_in_it(dtype: str) -> None:
    """A wrong sign shows in every dtype, although half precision has too few digits to prove a slope right."""

    def flipped(x, dy):
        return -2 * x * dy

    right, wrong = (nasty(f, [0.5, 1.0, -2.0], (dtype,)) for f in (tf.square, custom_gradient(tf.square, flipped)))
    assert failed(report(right, modes=("graph",), checks=SEEDED)) == []
    assert "derivative" in failed(report(wrong, modes=("graph",), checks=SEEDED))
