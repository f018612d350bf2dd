"""The mechanisms work wherever the gradient is taken.

Every op here is y = eˣ with rules that are not its derivative, so that a rule that TensorFlow ignores shows.
"""

import numpy as np
import pytest
import tensorflow as tf

from ops import additive, custom_gradient, multiplicative, override, recompute, register_gradient
from tests.ops.cases import eps
from tests.ops.places import PLACES, by_tapes, in_v1

X = np.array([0.5, -1.5, 2.0])
E = np.exp(X)


def exponential(x):
    return tf.exp(x)


def cube(x):
    return x * x * x


def vjp(x, dy):
    return 3 * x * x * dy


# Each with its gradients of orders 1, 2 and 3.
FROZEN = E / X**3
MECHANISMS = {
    "both orders": (
        custom_gradient(exponential, vjp, lambda x, dy, ddx: (7 * x * dy * ddx, 3 * x * x * ddx)),
        (3 * X**2, 7 * X, 7 + 0 * X),
    ),
    "first order": (custom_gradient(exponential, vjp), (3 * X**2, 6 * X, 6 + 0 * X)),
    "override": (
        override({"Exp": lambda operation, dy: vjp(operation.inputs[0], dy)}, exponential),
        (3 * X**2, 6 * X, 6 + 0 * X),
    ),
    "recomputed": (recompute(custom_gradient(exponential, vjp)), (3 * X**2, 6 * X, 6 + 0 * X)),
    "additive": (additive(exponential, cube), (3 * X**2, 6 * X, 6 + 0 * X)),
    "multiplicative": (multiplicative(exponential, cube), (FROZEN * 3 * X**2, FROZEN * 6 * X, FROZEN * 6)),
}


every_place = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)

# The rules are a dozen multiplications of exact numbers, or of eˣ, which is exact to a unit or two.
close = {"rtol": 16 * eps("float64"), "atol": 0}


@pytest.mark.share(3)
@pytest.mark.slow
@every_place
@every_mechanism
def test_every_order_is_the_rule_wherever_it_is_taken(mechanism, place) -> None:
    op, slopes = mechanism
    for found, expected in zip(place(op, X, 3), (E, *slopes), strict=True):
        np.testing.assert_allclose(found, expected, **close)


@pytest.mark.slow
@pytest.mark.parametrize("place", [PLACES[name] for name in PLACES if not name.startswith("xla")])
@every_mechanism
def test_second_order_under_a_cotangent_that_depends_on_x(mechanism, place) -> None:
    """For y², vjp gets dy = 2y, which has its own gradient: the x slot times 2y, and the dy slot times 2 dy/dx."""
    op, (first, second, _) = mechanism
    _, one, two = place(lambda x: tf.square(op(x)), X, 2)
    np.testing.assert_allclose(one, 2 * E * first, **close)
    np.testing.assert_allclose(two, 2 * E * second + 2 * first**2, **close)


def scaled_value(x, *, scale):
    return tf.exp(x)


@every_place
@pytest.mark.parametrize(
    "op",
    [
        custom_gradient(scaled_value, lambda x, dy, *, scale: scale * dy),
        override({"Exp": lambda operation, dy, *, scale: scale * dy}, scaled_value, numbers=("scale",)),
    ],
    ids=["custom_gradient", "override"],
)
def test_numbers_reach_the_rules(op, place) -> None:
    for scale in (-2.0, 0.25):
        _, one = place(lambda x, scale=scale: op(x, scale=tf.constant(scale, x.dtype)), X, 1)
        np.testing.assert_array_equal(one, scale + 0 * X)


@every_place
def test_slots_without_a_gradient(place) -> None:
    """vjp gets no cotangent of an integer output, and a slot for which it returns ``None`` has no gradient."""
    op = custom_gradient(
        lambda x, n: (x * x, tf.cast(n, x.dtype) * x, n + 1),
        lambda x, n, dy, dz: (5 * x * dy + 7 * dz, None),
        lambda x, n, dy, dz, ddx: (11 * dy * ddx, None, 5 * x * ddx, 7 * ddx),
    )
    n = tf.constant([1, 2, 3]) if place is not in_v1 else np.array([1, 2, 3], np.int32)
    _, one, two = place(lambda x: tf.add_n(op(x, tf.constant(n))[:2]), X, 2)
    np.testing.assert_allclose(one, 5 * X + 7, **close)
    np.testing.assert_allclose(two, 11 + 0 * X, **close)


def test_sparse_gradients_are_made_dense() -> None:
    rows = [2, 0]
    op = custom_gradient(
        lambda x: tf.gather(x, rows), lambda x, dy: tf.IndexedSlices(3 * dy, tf.constant(rows), tf.shape(x))
    )
    with tf.GradientTape() as tape:
        tape.watch(x := tf.constant(X))
        y = op(x)
    np.testing.assert_array_equal(tape.gradient(y, x), [3.0, 0.0, 3.0])


CONTRAST = "AdjustContrastv2"


def contrast(x):
    return tf.raw_ops.AdjustContrastv2(images=tf.reshape(x, [1, 1, 3, 1]), contrast_factor=2.0)


def test_a_registered_gradient_is_that_of_the_op() -> None:
    with pytest.raises(LookupError, match=f"no entry for: {CONTRAST}"):
        by_tapes(contrast, tf.constant(X, tf.float32), 1)

    @register_gradient(CONTRAST)
    def contrast_gradient(operation, dy):
        return 4 * dy, None

    for name, place in PLACES.items():
        if not name.startswith("xla"):
            _, one = place(contrast, X.astype(np.float32), 1)
            np.testing.assert_array_equal(one, [4.0, 4.0, 4.0], err_msg=name)
    with pytest.raises(KeyError, match=CONTRAST):
        register_gradient(CONTRAST)(contrast_gradient)


def test_rules_may_take_any_number_of_arguments() -> None:
    def product(x, w):
        return x * w

    def of_product(*leaves):
        x, w, dy = leaves
        return w * dy, x * dy

    def again(*leaves):
        x, w, dy, ddx, ddw = leaves
        return ddw * dy, ddx * dy, ddx * w + ddw * x

    function, x = custom_gradient(product, of_product, again), tf.constant(X)
    with tf.GradientTape(persistent=True) as second:
        second.watch(x)
        with tf.GradientTape() as first:
            first.watch(x)
            y = function(x, 2 * x)
        gradient = first.gradient(y, x)
    np.testing.assert_allclose(gradient, 4 * X, **close)
    np.testing.assert_allclose(second.gradient(gradient, x), 4 + 0 * X, **close)
