"""What a page cannot do: the error names what it uses, and the cure, in each mode in which it fails."""

import logging

import numpy as np
import pytest
import tensorflow as tf

from app.errors import OpFailed
from app.runtime.messages import message_of
from app.telemetry.log import TextFormatter
from ops import MODES, Example, Input, Op, Output, custom_gradient
from tests.ops.cases import Case, answer

WEIGHT, FIXED = tf.Variable(3.0, dtype="float64"), tf.constant(3.0, "float64")


class Layer:
    """An object with a tensor."""

    def __init__(self) -> None:
        self.kernel = tf.constant(3.0, "float64")

    def __call__(self, x):
        return self.kernel * x


LAYER = Layer()
TABLE = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([0], [3.0]), 0.0)


def by_weight_again(x, dy, ddx):
    return 0 * x * ddx, ddx * WEIGHT


@tf.custom_gradient
def bare(x):
    return x * WEIGHT, lambda dy: dy * WEIGHT


def made_by_version_1(x):
    return x * tf.compat.v1.get_variable("fresh", [], x.dtype)


def case(function, *outputs: str, n: int = 1, shape=("N",)) -> Case:
    slots = tuple(Input(f"x{i}", dtypes=("float64",), shape=shape) for i in range(n))
    op = Op(
        name="limited",
        summary="of a test",
        doc=None,
        function=function,
        inputs=slots,
        outputs=tuple(Output(name, dtypes=("float64",), shape=shape, differentiable=name != "z") for name in outputs),
        source="a test",
        examples=(Example("one", {slot.name: np.ones([2] * len(shape)).tolist() for slot in slots}),),
    )
    return Case(op, op.examples[0])


def error_of(point) -> str:
    with pytest.raises(OpFailed) as caught:
        answer(point, "vjp", {})
    return f"{caught.value.detail} {caught.value.entries}"


READS = {
    "FIXED (a float64 tensor of shape ())": lambda x: x * FIXED,
    "LAYER.kernel (a float64 tensor": LAYER,
    "TABLE (a table": lambda x: x * tf.cast(TABLE.lookup(tf.constant(0)), x.dtype),
}


@pytest.mark.parametrize("mode", ["xla", "v1"])
@pytest.mark.parametrize("name", READS)
def test_what_a_graph_cannot_read_is_named_with_the_cure(name, mode) -> None:
    one = case(READS[name], "y")
    if mode == "xla" and "tensor" in name:
        assert answer(one.point(mode=mode), "vjp", {})["gradients/x0"].tolist() == [3.0, 3.0]
        return
    error = error_of(one.point(mode=mode))
    assert name in error
    assert 'expected an input of the op, an array of NumPy, such as W.numpy(), or Op(modes=("graph", "eager"))' in error


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "function", [bare, custom_gradient(lambda x: x * WEIGHT, lambda x, dy: dy * WEIGHT, by_weight_again)]
)
def test_a_variable_in_a_gradient_by_hand_is_refused_with_the_cure(function, mode) -> None:
    """Where no start has refused it, as with attributes that no example has."""
    error = error_of(case(function, "y").point(mode=mode))
    assert "the op reads WEIGHT (a variable): expected parameters=(Parameter(" in error


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("function", [lambda x: x * tf.Variable(3.0, dtype=x.dtype, name="fresh"), made_by_version_1])
def test_a_variable_that_each_call_would_make_is_refused(function, mode) -> None:
    error = error_of(case(function, "y").point(mode=mode))
    assert "makes a variable, fresh: expected one made when the page is loaded" in error


SIZES = {
    "np.ones": lambda x, dy: dy * np.ones(x.shape.as_list()),
    "tf.zeros": lambda x, dy: dy + tf.zeros(x.shape, x.dtype),
    "range": lambda x, dy: tf.stack([dy[i] for i in range(x.shape[0])]),
    "if": lambda x, dy: dy if x.shape[0] > 1 else 2 * dy,
    "unstack": lambda x, dy: tf.stack(tf.unstack(dy)),
    "eye": lambda x, dy: tf.linalg.matvec(tf.eye(x.shape[0], dtype=x.dtype), dy),
    "elements": lambda x, dy: dy * np.ones(x.shape.num_elements()),
}


@pytest.mark.parametrize("mode", ["graph", "v1"])
@pytest.mark.parametrize("name", SIZES)
def test_a_static_size_that_is_unknown_has_its_cure(name, mode) -> None:
    one = case(custom_gradient(tf.identity, SIZES[name]), "y")
    error = error_of(one.point(mode=mode))
    assert "needs a size that is unknown while TensorFlow traces: expected tf.shape(x)[i]" in error
    assert answer(one.point(mode="eager"), "vjp", {})["gradients/x0"].tolist() == [1.0, 1.0]


def test_none_of_another_cause_is_not_a_static_size() -> None:
    assert "static shape" not in error_of(case(custom_gradient(tf.identity, lambda x, dy: dy * None), "y").point())


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_a_loop_over_a_tensor_has_its_cure_in_a_graph(mode) -> None:
    point = case(lambda x: tf.stack([2 * each for each in x]), "y").point(mode=mode)
    if mode == "graph":
        assert "a loop over a tensor needs tf.map_fn, tf.scan or tf.while_loop" in error_of(point)
    else:
        assert answer(point, "vjp", {})["gradients/x0"].tolist() == [2.0, 2.0]


@pytest.mark.parametrize("mode", ["graph", "eager"])
@pytest.mark.parametrize("hand", [False, True])
@pytest.mark.parametrize("names", [("y",), ("y", "w")])
def test_a_dict_of_outputs_has_its_cure(names, hand, mode) -> None:
    def forward(x):
        return dict.fromkeys(names, 2 * x)

    function = custom_gradient(forward, lambda x, *dys: 2 * dys[0]) if hand else forward
    error = error_of(case(function, *names).point(mode=mode))
    assert f"expected one value for each of {', '.join(names)}, in a tuple of this order, got a dict of y" in error


def test_a_dict_of_gradients_has_its_cure() -> None:
    error = error_of(case(custom_gradient(tf.identity, lambda x, dy: {"x": dy}), "y").point())
    assert "expected one value for each of x, got a dict of x" in error


def test_complex_outputs_have_their_cure() -> None:
    error = error_of(case(lambda x: tf.cast(x, tf.complex128), "y").point())
    assert 'expected a float64 tensor, or declare Output(dtypes=("complex64", "complex128"))' in error


@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_a_vjp_without_the_slot_of_an_output_that_is_not_differentiable_has_its_cure(mode) -> None:
    def two(x):
        return 2 * x, tf.round(x)

    error = error_of(case(custom_gradient(two, lambda x, dy: 2 * dy), "y", "z").point(mode=mode))
    assert "expected 3 by position: the inputs, then the cotangent of each float output, differentiable or not" in error
    by_hand = tf.custom_gradient(lambda x: (two(x), lambda dy: 2 * dy))
    error = error_of(case(by_hand, "y", "z").point(mode=mode))
    assert "a gradient gets one for each output, differentiable or not" in error


def test_messages_have_no_terminal_codes() -> None:
    """Keras adds them, and the arguments of the call after the reason."""
    text = "Exception when calling f().\n\n\x1b[1mno weights\x1b[0m\n\nArguments received by f():\n  • x"
    assert message_of(ValueError(text)) == "Exception when calling f(). no weights"
    record = logging.makeLogRecord({"msg": "failed", "exc_info": (ValueError, ValueError(text), None)})
    assert "no weights" in TextFormatter().format(record)
    assert "\x1b" not in TextFormatter().format(record)
