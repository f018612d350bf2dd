"""Gradient functions that run when the function of a model has returned: they read the values of the request."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.autodiff import derivatives
from app.autodiff.admission import admit
from app.autodiff.binding import bind
from app.autodiff.derived import variant_of
from app.errors import OpFailed
from app.tensors.json import decode
from ops import MODES, Example, Input, Mode, Op, Output
from tests.ops.cases import DEVICE

ROW = [[0.5, -1.0, 2.0], [0.25, 1.0, -1.0]]
OWN = np.array([[0.5, -1.0], [0.25, 0.75], [-0.5, 1.5]], np.float32)


def own_product(x, w):
    """The product of matrices, which reads its arguments again in its gradient."""
    return x @ w, lambda dy: (tf.matmul(dy, w, transpose_b=True), tf.matmul(x, dy, transpose_a=True))


class Layer(keras.layers.Layer):
    """tanh(x w), of a function of x and the variable w."""

    def __init__(self, product: Any, *, trainable: bool = True) -> None:
        super().__init__()
        self.product, self.is_trained = product, trainable

    def build(self, input_shape: Any) -> None:
        own = keras.initializers.Constant(OWN)
        self.w = self.add_weight(shape=(input_shape[-1], 2), name="w", initializer=own, trainable=self.is_trained)

    def call(self, x: Any) -> Any:
        return tf.tanh(self.product(x, self.w))


class Module(tf.Module):
    """The same."""

    def __init__(self, product: Any) -> None:
        super().__init__()
        self.product, self.w = product, tf.Variable(OWN)

    def __call__(self, x: Any) -> Any:
        return tf.tanh(self.product(x, self.w))


class WithFunction(Module):
    """A module that keeps a function of TensorFlow, which would keep the values of its first call."""

    def __init__(self) -> None:
        super().__init__(None)
        self.product = tf.function(lambda x, _: x @ self.w)


def keras_product(x, w):
    """Own product, as Keras declares a gradient."""

    def gradient(dy, upstream=None):
        return own_product(x, w)[1](dy if upstream is None else upstream)

    return x @ w, gradient


def late_in_eager_mode(x, w):
    """A product whose gradient reads the variable itself, in eager mode alone, where no start can find it."""
    kept = [layer.w for layer in LATE if tf.executing_eagerly()]
    return x @ w, lambda dy: (tf.matmul(dy, [*kept, w][0], transpose_b=True), tf.matmul(x, dy, transpose_a=True))


def of_keras(layer: Layer) -> Op:
    model = keras.Sequential([keras.Input((3,)), layer])
    op = Op.from_keras(model, name="net", summary="a test", examples=(Example("one", {"x": ROW}),))
    admit(op)
    return op


def of_module(module: tf.Module) -> Op:
    slots = {"inputs": (Input("x", ("float32",), ("N", 3)),), "outputs": (Output("y", ("float32",), ("N", 2)),)}
    return Op.from_module(module, name="net", summary="a test", examples=(Example("one", {"x": ROW}),), **slots)


def found(op: Op, mode: Mode, w: Any) -> list[Any]:
    """Return the gradients of both orders in x and w, for values of the request or, for ``None``, those of the page."""
    [parameter] = op.parameters
    inputs = {"x": ROW} | ({} if w is None else {parameter.name: w.tolist()})
    at = variant_of(op, dict.fromkeys(inputs))
    point = bind(at, inputs, {}, None, decode, mode=mode, device=DEVICE, max_elements=1 << 20)
    _, levels = derivatives.gradients(point, ("x", parameter.name), None, 2).run()
    return [level[name] for level in levels for name in ("x", parameter.name)]


def expected(w: Any) -> list[Any]:
    xs = tf.constant(ROW), tf.constant(w)
    with tf.GradientTape() as second:
        second.watch(xs)
        with tf.GradientTape() as first:
            first.watch(xs)
            y = tf.tanh(xs[0] @ xs[1])
        once = first.gradient(y, xs)
        total = tf.add_n([tf.reduce_sum(dx) for dx in once])
    return [*once, *second.gradient(total, xs)]


MODELS = {
    "a variable of Keras": lambda: of_keras(Layer(tf.custom_gradient(own_product))),
    "a variable that is not trained": lambda: of_keras(Layer(tf.custom_gradient(own_product), trainable=False)),
    "a gradient of Keras": lambda: of_keras(Layer(keras.ops.custom_gradient(keras_product))),
    "a variable of a module": lambda: of_module(Module(tf.custom_gradient(own_product))),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MODELS)
def test_a_gradient_function_reads_the_values_of_each_request(name: str, mode: Mode) -> None:
    op = MODELS[name]()
    for w in (None, 2 * OWN - 1, OWN):
        for one, other in zip(found(op, mode, w), expected(OWN if w is None else w), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


LATE = list[Layer]()


@pytest.mark.parametrize("is_trained", [True, False])
def test_a_late_read_of_a_variable_is_refused_in_eager_mode(is_trained: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = Layer(tf.custom_gradient(late_in_eager_mode), trainable=is_trained)
    op = of_keras(layer)
    monkeypatch.setitem(globals(), "LATE", [layer])
    with pytest.raises(OpFailed, match=r"the op reads .*w \(a variable\)"):
        found(op, "eager", 2 * OWN - 1)


def test_a_module_that_keeps_a_function_of_tensorflow_is_refused() -> None:
    with pytest.raises(ValueError, match=r"WithFunction\.product without @tf\.function"):
        of_module(WithFunction())
