"""Faults that the mechanisms report: invalid gradients, at either order, and arguments that TensorFlow accepts."""

import numpy as np
import pytest
import tensorflow as tf

from app.errors import OpFailed
from ops import MODES, Attrs, Example, Input, Op, OpFault, Output, custom_gradient, override, register_gradient
from tests.ops.cases import Case, answer
from tests.ops.places import PLACES, at_once, by_gradients, by_tapes, in_function, of_function

pytestmark = pytest.mark.slow

X = np.array([0.5, -1.5, 2.0])


def exponential(x):
    return tf.exp(x)


def vjp(x, dy):
    return 3 * x * x * dy


def vjp_vjp(x, dy, ddx):
    return 7 * x * dy * ddx, 3 * x * x * ddx


def registered(operation, dy):
    return vjp(operation.inputs[0], dy)


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
        with pytest.raises(OpFault, match=r"^rule returned "):
            place(op, X, 1)
    # The trace of an override has no shapes, so the caller reports a wrong shape.
    if "shape" not in next(name for name, fault in WRONG.items() if fault is wrong) and wrong is not WRONG["a scalar"]:
        with pytest.raises(OpFault, match=r"^registered_rule returned "):
            place(override({"Exp": registered_rule}, exponential), X, 1)


@every_gradient
@every_fault
def test_a_wrong_gradient_is_refused_at_second_order(wrong, place) -> None:
    def rule(x, dy, ddx):
        return as_one(wrong(x, vjp_vjp(x, dy, ddx)))

    with pytest.raises(OpFault, match=r"^rule returned "):
        place(custom_gradient(exponential, vjp, rule), X, 2)


def faulty(function) -> Case:
    op = Op(
        name="faulty",
        summary="eˣ",
        doc=None,
        function=function,
        reference=np.exp,
        inputs=(Input("x", dtypes=("float64",)),),
        outputs=(Output("y", dtypes=("float64",)),),
        attrs=Attrs,
        source="",
        examples=(Example("three", {"x": X.tolist()}),),
    )
    return Case(op, op.examples[0])


@pytest.mark.parametrize("mode", MODES)
@every_fault
def test_every_mode_refuses_a_wrong_gradient(wrong, mode) -> None:
    function = custom_gradient(exponential, lambda x, dy: as_one(wrong(x, (3 * x * x * dy,))))
    with pytest.raises(OpFailed, match="faulty"):
        answer(faulty(function).point(mode=mode), "vjp", {})


@pytest.mark.parametrize("mode", MODES)
@every_fault
def test_every_mode_refuses_a_wrong_gradient_of_an_override(wrong, mode) -> None:
    """The service has the shapes, which a trace of an override does not: it refuses wrong ones."""
    function = override({"Exp": lambda op, dy: as_one(wrong(op.inputs[0], (3 * dy * op.inputs[0],)))}, exponential)
    with pytest.raises(OpFailed, match="faulty"):
        answer(faulty(function).point(mode=mode), "vjp", {})


def bound_to(op_type, gradient):
    """Return eˣ with a gradient registered for a new type, by a bare override map in a function."""
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
    """TensorFlow calls it with N + 1 arguments: the op, and a cotangent for each of N outputs."""
    bare = bound_to(f"Arity{gradient.__name__}", gradient)
    for op, place in [(bare, in_function(by_gradients)), (override({"Exp": gradient}, exponential), at_once)]:
        with pytest.raises(OpFault, match="takes the wrong arguments: expected 2 by position"):
            place(op, X, 1)


@every_gradient
def test_rules_of_the_wrong_arity_are_refused(place) -> None:
    """A vjp without its dy, as a gradient of x alone would be, and a vjp_vjp without its ddx."""
    with pytest.raises(OpFault, match="takes the wrong arguments: expected 2 by position"):
        place(custom_gradient(exponential, without_op), X, 1)
    with pytest.raises(OpFault, match="takes the wrong arguments: expected 3 by position"):
        place(custom_gradient(exponential, vjp, vjp), X, 2)


@every_fault
def test_a_registered_gradient_is_checked(wrong) -> None:
    def rule(operation, dy):
        return as_one(wrong(operation.inputs[0], (dy,)))

    name = next(name for name, fault in WRONG.items() if fault is wrong)
    with pytest.raises(OpFault, match=r"^rule returned (a wrong value for input 0 of Exp|the wrong number of values)"):
        in_function(by_gradients)(bound_to("Checked" + name.title().replace(" ", ""), rule), X, 1)


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_an_override_of_a_missing_op_is_refused(place) -> None:
    """A misspelt op type, such as "sign" for "Sign", which TensorFlow silently ignores."""
    op = override({"exp": registered}, exponential)
    with pytest.raises(ValueError, match=r"exponential has no op of type \['exp'\]"):
        place(op, X, 1)
