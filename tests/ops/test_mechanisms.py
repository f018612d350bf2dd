"""The helpers that give an op its gradient: where they work, and what they refuse.

Every op here is y = eˣ with rules that are not its derivative, so that a rule which TensorFlow passes over shows.
"""

import numpy as np
import pytest
import tensorflow as tf

from app.errors import OpFailed
from app.modes import MODES
from ops import (
    Attrs,
    Example,
    GradientFault,
    Input,
    Op,
    Output,
    additive,
    custom_gradient,
    multiplicative,
    override,
    register_gradient,
)
from tests.ops.cases import Case, answer, eps

X = np.array([0.5, -1.5, 2.0])
E = np.exp(X)


def exponential(x):
    return tf.exp(x)


def cube(x):
    return x * x * x


def vjp(x, dy):
    return 3 * x * x * dy


def vjp_vjp(x, dy, ddx):
    return 7 * x * dy * ddx, 3 * x * x * ddx


def registered(operation, dy):
    return vjp(operation.inputs[0], dy)


# Each with what it makes of the orders 1, 2 and 3.
FROZEN = E / X**3
MECHANISMS = {
    "both orders": (custom_gradient(exponential, vjp, vjp_vjp), (3 * X**2, 7 * X, 7 + 0 * X)),
    "first order": (custom_gradient(exponential, vjp), (3 * X**2, 6 * X, 6 + 0 * X)),
    "override": (override({"Exp": registered}, exponential), (3 * X**2, 6 * X, 6 + 0 * X)),
    "additive": (additive(exponential, cube), (3 * X**2, 6 * X, 6 + 0 * X)),
    "multiplicative": (multiplicative(exponential, cube), (FROZEN * 3 * X**2, FROZEN * 6 * X, FROZEN * 6)),
}


def by_tapes(f, x, orders):
    """Differentiate by nested tapes, all of them where this is called."""
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        levels = [f(x)] if orders == 1 else by_tapes(f, x, orders - 1)
    return [*levels, tape.gradient(levels[-1], x)]


def by_gradients(f, x, orders):
    """Differentiate by ``tf.gradients`` in the graph where this is called."""
    levels = [f(x)]
    for _ in range(orders):
        levels += tf.gradients(levels[-1], x)
    return levels


def in_function(differentiate, **options):
    """Take the derivatives inside of a ``tf.function``."""

    def run(f, x, orders):
        return tf.function(lambda x: differentiate(f, x, orders), autograph=False, **options)(tf.constant(x))

    return run


def of_function(differentiate, **options):
    """Take the derivatives of a ``tf.function``, outside of it."""

    def run(f, x, orders):
        return differentiate(tf.function(f, autograph=False, **options), tf.convert_to_tensor(x), orders)

    return run


def in_v1(f, x, orders):
    with tf.Graph().as_default() as graph:
        holder = tf.compat.v1.placeholder(x.dtype, [None])
        levels = by_gradients(f, holder, orders)
    with tf.compat.v1.Session(graph=graph) as session:
        return session.run(levels, {holder: x})


def at_once(f, x, orders):
    return by_tapes(f, tf.constant(x), orders)


PLACES = {
    "eager": at_once,
    "tape inside": in_function(by_tapes),
    "tape outside": of_function(by_tapes),
    "nested, tape between": in_function(of_function(by_tapes)),
    "nested, tape outside": of_function(lambda f, x, n: by_tapes(tf.function(f, autograph=False), x, n)),
    "gradients inside": in_function(by_gradients),
    "gradients of a nested one": in_function(of_function(by_gradients)),
    "xla, tape inside": in_function(by_tapes, jit_compile=True),
    "xla, tape outside": of_function(by_tapes, jit_compile=True),
    "v1": in_v1,
}
every_place = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)

# The rules are a dozen multiplications of numbers that are exact, or of eˣ, which is good to a unit or two.
close = {"rtol": 16 * eps("float64"), "atol": 0}


@every_place
@every_mechanism
def test_every_order_is_the_rule_wherever_it_is_taken(mechanism, place) -> None:
    op, slopes = mechanism
    for found, expected in zip(place(op, X, 3), (E, *slopes), strict=True):
        np.testing.assert_allclose(found, expected, **close)


@every_place
@every_mechanism
def test_second_order_under_a_cotangent_that_depends_on_x(mechanism, place) -> None:
    """Of y², vjp gets dy = 2y, which has a gradient of its own: the x slot times 2y, and the dy slot times 2 dy/dx."""
    op, (first, second, _) = mechanism
    _, one, two = place(lambda x: tf.square(op(x)), X, 2)
    np.testing.assert_allclose(one, 2 * E * first, **close)
    np.testing.assert_allclose(two, 2 * E * second + 2 * first**2, **close)


def scaled(operation, dy, *, scale):
    return scale * dy


@every_place
@pytest.mark.parametrize(
    "op",
    [
        custom_gradient(lambda x, *, scale: tf.exp(x), lambda x, dy, *, scale: scale * dy),
        override({"Exp": scaled}, lambda x, *, scale: tf.exp(x), numbers=("scale",)),
    ],
    ids=["custom_gradient", "override"],
)
def test_numbers_reach_the_rules(op, place) -> None:
    for scale in (-2.0, 0.25):
        _, one = place(lambda x, scale=scale: op(x, scale=tf.constant(scale, x.dtype)), X, 1)
        np.testing.assert_array_equal(one, scale + 0 * X)


def two_inputs(x, n):
    return x * x, tf.cast(n, x.dtype) * x, n + 1


@every_place
def test_slots_without_a_gradient(place) -> None:
    """No cotangent of an integer output arrives at vjp, and what vjp has no gradient for gets none."""
    op = custom_gradient(
        two_inputs,
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


WRONG = {
    "a Python int": lambda x, good: 0,
    "too many": lambda x, good: (*good, good[0]),
    "too few": lambda x, good: good[1:],
    "another shape": lambda x, good: (tf.concat([good[0], good[0]], 0), *good[1:]),
    "a scalar": lambda x, good: (tf.constant(0.0, x.dtype), *good[1:]),
    "another dtype": lambda x, good: (tf.cast(good[0], tf.float16), *good[1:]),
    "a NumPy array": lambda x, good: (np.zeros(3), *good[1:]),
}
every_fault = pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
every_gradient = pytest.mark.parametrize("place", [at_once, in_function(by_gradients), of_function(by_tapes)])


def as_one(values):
    return values[0] if isinstance(values, tuple) and len(values) == 1 else values


@every_gradient
@every_fault
def test_a_wrong_gradient_is_refused_at_first_order(wrong, place) -> None:
    def rule(x, dy):
        return as_one(wrong(x, (3 * x * x * dy,)))

    def registered_rule(operation, dy):
        return rule(operation.inputs[0], dy)

    for op in (custom_gradient(exponential, rule), custom_gradient(exponential, rule, vjp_vjp)):
        with pytest.raises(GradientFault, match="rule returned a wrong gradient"):
            place(op, X, 1)
    # The trace of an override knows no shape: of the shape it is the caller who learns.
    if "shape" not in next(name for name, one in WRONG.items() if one is wrong) and wrong is not WRONG["a scalar"]:
        with pytest.raises(GradientFault, match="registered_rule returned a wrong gradient"):
            place(override({"Exp": registered_rule}, exponential), X, 1)


@every_gradient
@every_fault
def test_a_wrong_gradient_is_refused_at_second_order(wrong, place) -> None:
    def rule(x, dy, ddx):
        return as_one(wrong(x, vjp_vjp(x, dy, ddx)))

    with pytest.raises(GradientFault, match="rule returned a wrong gradient"):
        place(custom_gradient(exponential, vjp, rule), X, 2)


@pytest.mark.parametrize("mode", MODES)
@every_fault
def test_every_mode_refuses_a_wrong_gradient(wrong, mode) -> None:
    """The service knows the shapes, whatever the mechanism: by them it refuses what a trace could not."""
    for function in (
        custom_gradient(exponential, lambda x, dy: as_one(wrong(x, (3 * x * x * dy,)))),
        override({"Exp": lambda op, dy: as_one(wrong(op.inputs[0], (3 * dy * op.inputs[0],)))}, exponential),
    ):
        faulty = Op(
            name="faulty",
            summary="eˣ",
            doc=None,
            function=function,
            reference=np.exp,
            inputs=(Input("x", dtypes=("float64",)),),
            outputs=(Output("y", dtypes=("float64",)),),
            attrs=Attrs,
            mechanism="custom_gradient",
            source="",
            examples=(Example("three", {"x": X.tolist()}),),
        )
        with pytest.raises(OpFailed, match="faulty"):
            answer(Case(faulty, faulty.examples[0]).point(mode=mode), "vjp", {})


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


def bound_to(op_type, gradient):
    """Return eˣ with a gradient registered for a type that has none, by a bare override map in a function."""
    register_gradient(op_type)(gradient)

    def op(x):
        with tf.compat.v1.get_default_graph().gradient_override_map({"Exp": op_type}):
            return tf.exp(x)

    return op


def without_op(dy):
    return dy


def with_another(operation, dy, dz):
    return dy


@pytest.mark.parametrize("gradient", [without_op, with_another])
def test_a_gradient_of_the_wrong_arity_is_refused(gradient) -> None:
    """TensorFlow calls it with the op and one cotangent for each of N outputs, N + 1 in all."""
    bare = bound_to(f"Arity{gradient.__name__}", gradient)
    for op, place in [(bare, in_function(by_gradients)), (override({"Exp": gradient}, exponential), at_once)]:
        with pytest.raises(GradientFault, match="expected 2 arguments: op and a cotangent for each of the 1 outputs"):
            place(op, X, 1)


@every_fault
def test_a_registered_gradient_is_checked(wrong) -> None:
    def rule(operation, dy):
        return as_one(wrong(operation.inputs[0], (dy,)))

    name = next(name for name, one in WRONG.items() if one is wrong)
    with pytest.raises(GradientFault, match="rule returned a wrong gradient for input 0 of Exp|for its inputs"):
        in_function(by_gradients)(bound_to("Checked" + name.title().replace(" ", ""), rule), X, 1)


@every_place
def test_an_override_of_an_op_that_is_not_there_is_refused(place) -> None:
    """"sign" for "Sign", which TensorFlow passes over in silence."""
    op = override({"exp": registered}, exponential)
    with pytest.raises(ValueError, match=r"exponential has no op of type \['exp'\]"):
        place(op, X, 1)
