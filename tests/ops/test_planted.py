"""The checks of the table fail for gradients that are wrong on purpose, and pass for the right one.

The op is y = x² w, x² element by element and x square, so that a transposed gradient has the right shape. Many of the
wrong rules are right at dy = 1, or at first order.
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from ops import Claim, Derivative, Example, Formula, Input, Op, Output, Surrogate, custom_gradient
from tests.ops import claims
from tests.ops.cases import Case, answer, directions, truth, used


def forward(x, w):
    """y = x² w."""
    return tf.linalg.matvec(x * x, w)


def vjp(x, w, dy):
    """dx = 2 x (dy wᵀ), dw = (x²)ᵀ dy."""
    return 2 * x * dy[:, None] * w, tf.linalg.matvec(x * x, dy, transpose_a=True)


def vjp_vjp(x, w, dy, ddx, ddw):
    """The derivative of ⟨dx, ddx⟩ + ⟨dw, ddw⟩ in x, w and dy."""
    of_x = 2 * dy[:, None] * w * ddx + 2 * x * dy[:, None] * ddw
    of_w = tf.linalg.matvec(2 * x * ddx, dy, transpose_a=True)
    of_dy = tf.linalg.matvec(2 * x * ddx, w) + tf.linalg.matvec(x * x, ddw)
    return of_x, of_w, of_dy


def reference(x, w):
    """y = x² w."""
    return (np.asarray(x, np.float64) ** 2) @ w


HONEST = Claim()


def op(first=vjp, second=vjp_vjp, value=forward, claim=HONEST):
    """Return the op with some of its rules replaced."""
    return Op(
        name="planted",
        summary="squares, weighted",
        doc=__doc__,
        function=custom_gradient(value, first, second),
        reference=reference,
        inputs=(Input("x", shape=("N", "M")), Input("w", shape=("M",))),
        outputs=(Output("y", shape=("N",)),),
        mechanism="custom_gradient",
        source="https://example.org",
        claim=lambda attrs: claim,
        examples=(Example("one", {"x": [[1.0, -2.0], [0.5, 3.0]], "w": [1.5, -0.75]}),),
    )


def check(planted):
    """Run every check of the table at the example, eagerly, to save the traces."""
    case = Case(planted, planted.examples[0])
    point = case.point(mode="eager")
    within = truth(point, "forward", {}).bound("outputs/y", "float64")
    claims.close(answer(point, "forward", {})["outputs/y"], reference(**point.inputs), within, "y")
    for run in (claims.check_first, claims.check_second, claims.check_cotangent_slots, claims.check_linear):
        run(point, case.rng)
    claims.check_products(point, case.rng)
    if case.linear:
        claims.check_adjoint(point, case.rng)


def wrong_value(x, w):
    return tf.linalg.matvec(x * x, w) * (1 + 1e-12)


def factor(x, w, dy):
    dx, dw = vjp(x, w, dy)
    return dx * (1 + 1e-9), dw


def dropped_cotangent(x, w, dy):
    return 2 * x * w * tf.ones_like(dy)[:, None], vjp(x, w, dy)[1]


def cotangent_squared(x, w, dy):
    return vjp(x, w, dy * dy)


def transposed(x, w, dy):
    dx, dw = vjp(x, w, dy)
    return tf.transpose(dx), dw


def swapped_weights(x, w, dy):
    return 2 * x * w[:, None] * dy, vjp(x, w, dy)[1]


def not_summed(x, w, dy):
    return vjp(x, w, dy)[0], (x * x)[0] * dy[0]


def frozen(x, w, dy):
    return vjp(tf.stop_gradient(x), w, dy)


def affine(x, w, dy):
    dx, dw = vjp(x, w, dy)
    return dx + 1e-6, dw


def second_factor(x, w, dy, ddx, ddw):
    of_x, of_w, of_dy = vjp_vjp(x, w, dy, ddx, ddw)
    return of_x / 2, of_w, of_dy


def second_without_cotangent(x, w, dy, ddx, ddw):
    return vjp_vjp(x, w, tf.ones_like(dy), ddx, ddw)


def second_without_mixed_terms(x, w, dy, ddx, ddw):
    return 2 * dy[:, None] * w * ddx, tf.zeros_like(w), vjp_vjp(x, w, dy, ddx, ddw)[2]


def second_of_the_other_input(x, w, dy, ddx, ddw):
    of_x, _, of_dy = vjp_vjp(x, w, dy, ddx, ddw)
    return of_x, tf.linalg.matvec(x * x, dy, transpose_a=True), of_dy


def second_transposed(x, w, dy, ddx, ddw):
    return vjp_vjp(x, w, dy, tf.transpose(ddx), ddw)


def cotangent_slot_of_x_alone(x, w, dy, ddx, ddw):
    return *vjp_vjp(x, w, dy, ddx, ddw)[:2], tf.linalg.matvec(2 * x * ddx, w)


def cotangent_slot_times_cotangent(x, w, dy, ddx, ddw):
    of_x, of_w, of_dy = vjp_vjp(x, w, dy, ddx, ddw)
    return of_x, of_w, of_dy * dy


def cotangent_slot_missing(x, w, dy, ddx, ddw):
    return *vjp_vjp(x, w, dy, ddx, ddw)[:2], None


def doubled(primals, at):
    return (2 * reference(*primals),)


def no_formula(primals, cotangents):
    return [2 * primals[0] * primals[1], (primals[0] ** 2).T @ cotangents[0]]


PLANTED = {
    "value": (op(value=wrong_value), "y: expected"),
    "factor": (op(first=factor, second=None), "dx against the derivative of the reference"),
    "dropped cotangent": (op(first=dropped_cotangent, second=None), "dx against the derivative of the reference"),
    "squared cotangent": (op(first=cotangent_squared, second=None), "dx against the derivative of the reference"),
    "transposed": (op(first=transposed, second=None), "dx against the derivative of the reference"),
    "swapped weights": (op(first=swapped_weights, second=None), "dx against the derivative of the reference"),
    "not summed": (op(first=not_summed, second=None), "dx against the derivative of the reference"),
    "frozen": (op(first=frozen, second=None), "the x slots against"),
    "affine": (op(first=affine, second=None), "dx against the derivative of the reference"),
    "second factor": (op(second=second_factor), "the x slots against"),
    "second without dy": (op(second=second_without_cotangent), "the x slots against"),
    "second without mixed terms": (op(second=second_without_mixed_terms), "the x slots against"),
    "second, another input": (op(second=second_of_the_other_input), "the x slots against"),
    "second transposed": (op(second=second_transposed), "the x slots against"),
    "dy slot of x alone": (op(second=cotangent_slot_of_x_alone), "the dy slots against"),
    "dy slot times dy": (op(second=cotangent_slot_times_cotangent), "the dy slots against"),
    "dy slot missing": (op(second=cotangent_slot_missing), "the dy slots against"),
    "not that surrogate": (op(claim=Claim(first=Surrogate(doubled))), "dx against the derivative of the surrogate"),
    "not that formula": (op(claim=Claim(first=Formula(no_formula))), "dx against its formula"),
    "linear after all": (op(claim=Claim(first=Derivative(), linear=False)), "the claim is not linear"),
}


@pytest.mark.parametrize(("planted", "message"), PLANTED.values(), ids=PLANTED)
def test_a_wrong_gradient_is_refused(planted: Op, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check(planted)


@pytest.mark.parametrize("second", [vjp_vjp, None])
def test_a_right_gradient_passes(second) -> None:
    check(op(second=second))


def test_modes_with_different_gradients_are_distinguished() -> None:
    """A bare override map: TensorFlow ignores it in eager mode."""

    @tf.RegisterGradient("PlantedSquare")
    def _halved(operation, dy):
        return dy * operation.inputs[0]

    def bare(x, w):
        with tf.compat.v1.get_default_graph().gradient_override_map({"Square": "PlantedSquare"}):
            return tf.linalg.matvec(tf.square(x), w)

    case = Case(one := dataclasses.replace(op(), function=bare), one.examples[0])
    along = used(directions(case.point(), case.rng), "vjp")
    found = {mode: answer(case.point(mode=mode), "vjp", along)["gradients/x"] for mode in ("graph", "v1", "eager")}
    np.testing.assert_array_equal(found["graph"], found["v1"])
    np.testing.assert_array_equal(found["graph"] * 2, found["eager"])
