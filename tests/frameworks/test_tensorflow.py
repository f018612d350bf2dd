"""pullback.tensorflow: TensorFlow's own proof of derivatives, eagerly, in graphs and in Keras; requests counted."""

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import pullback
import pullback.tensorflow

LOGITS, LABELS = np.array([[1.0, -0.5, 2.0], [0.25, 0.0, -3.0]]), np.array([2, 0], np.int32)
SYMMETRIC = np.array([[2.0, 1.0, 0.0], [1.0, 3.0, -1.0], [0.0, -1.0, 5.0]])
FEATURES, ROIS = np.arange(9.0).reshape(1, 3, 3, 1), np.array([[0.0, 0, 0, 2, 2], [0, 1, 1, 2, 1]])
X = np.array([-0.5, 0.25, 2.0])
Function = Callable[..., Any]


class Remote(keras.layers.Layer):
    """A layer that applies a function, which XLA cannot compile."""

    def __init__(self, function: Function) -> None:
        super().__init__(dtype="float64")
        self.function = function
        self.supports_jit = False

    def call(self, x: Any) -> Any:
        return self.function(x)


def keras_model(f: Function) -> Function:
    """A model with one layer, whose batch has an unknown size while it is built."""

    def run(x: tf.Tensor) -> Any:
        given = keras.Input(x.shape[1:], dtype="float64")
        return keras.Model(given, Remote(f)(given))(x)

    return run


WAYS = pytest.mark.parametrize("way", [lambda f: f, tf.function, keras_model], ids=["eager", "graph", "keras"])


def derivative(f: Function, *xs: tf.Tensor) -> Any:
    with tf.GradientTape() as tape:
        tape.watch(xs)
        y = f(*xs)
    return tape.gradient(y, xs)


def total(f: Function) -> Function:
    return lambda *xs: sum(tf.reduce_sum(y) for y in tf.nest.flatten(f(*xs)) if y.dtype.is_floating)


def gradient(f: Function) -> Function:
    return lambda x: derivative(total(f), x)[0]


def hessian(f: Function, x: tf.Tensor, **options: bool) -> tf.Tensor:
    with tf.GradientTape() as tape:
        tape.watch(x)
        g = gradient(f)(x)
    return tape.jacobian(g, x, **options)


def forward(f: Function, x: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    with tf.autodiff.ForwardAccumulator(x, v) as accumulator:
        y = f(x)
    return accumulator.jvp(y)


def assert_gradients_are_right(f: Function, x: Any) -> None:
    (theoretical,), (numeric,) = tf.test.compute_gradient(f, [x])
    np.testing.assert_allclose(theoretical, numeric, rtol=1e-6, atol=1e-6)


@WAYS
@pytest.mark.parametrize(
    "case",
    [
        ("log1pexp", None, X, []),
        ("softmax_cross_entropy", None, LOGITS, [LABELS]),
        ("self_adjoint_eig", None, SYMMETRIC, []),
        ("zero_out_indexed", None, np.array([5.0, 4.0, 3.0]), []),
        ("roi_pool", {"pooled_height": 1, "pooled_width": 1}, FEATURES, [ROIS]),
    ],
    ids=itemgetter(0),
)
def test_compute_gradient_of_the_value_and_of_the_gradient(remote, way, case) -> None:
    name, attrs, x, constants = case
    op = remote(name, attrs=attrs)

    def f(x: tf.Tensor) -> tf.Tensor:
        """Return the sums of the squares of the outputs: all outputs matter, and the gradient is not constant."""
        outputs = tf.nest.flatten(op(x, *constants))
        return tf.stack([tf.reduce_sum(y**2) for y in outputs if y.dtype.is_floating])[None, :]

    assert_gradients_are_right(way(f), x)
    assert_gradients_are_right(way(gradient(f)), x)


def test_inputs_together(remote) -> None:
    f, (x, z) = remote("squares"), tf.constant(np.stack([X, X + 1]))
    for run in (derivative, tf.function(derivative)):
        np.testing.assert_allclose(run(f, x, z), [2 * x * z**2, 2 * x**2 * z])
    mixed = derivative(lambda x, z: derivative(f, x, z)[0], x, z)
    np.testing.assert_allclose(mixed, [2 * z**2, 4 * x * z])


@pytest.mark.parametrize("use_pfor", [True, False])
def test_a_second_order_that_is_not_symmetric_keeps_its_sides(remote, use_pfor) -> None:
    """Row i of the Hessian has the derivatives of the gradient's entry i: H = [0 1; 2 3], not its transpose."""
    f, v, m = remote("skewed"), np.array([1.0, 10.0]), np.array([[0.0, 1.0], [2.0, 3.0]])
    x, z = tf.constant([1.0, 2.0], tf.float64), tf.constant([4.0, 5.0], tf.float64)
    found = tf.function(partial(hessian, lambda x: f(x, z), experimental_use_pfor=use_pfor))(x)
    np.testing.assert_allclose(found, m)
    for run in (forward, tf.function(forward)):
        np.testing.assert_allclose(run(gradient(lambda x: f(x, z)), x, tf.constant(v)), m @ v)
    weighted = gradient(lambda x: gradient(lambda x: f(x, z))(x) * v)
    np.testing.assert_allclose(weighted(x), m.T @ v)


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function])
def test_forward_mode_and_orders_up_to_the_fourth(remote, wrap) -> None:
    """``tf.custom_gradient`` answers zero in graphs, to forward mode and to derivatives of a Jacobian."""
    f, x, ones = remote("log1pexp"), tf.constant(X), tf.ones(3, tf.float64)
    s = 1 / (1 + np.exp(-X))
    first, second = s, s * (1 - s)
    third = second * (1 - 2 * s)
    np.testing.assert_allclose(wrap(partial(forward, f))(x, ones), first)
    np.testing.assert_allclose(wrap(partial(forward, gradient(f)))(x, ones), second)
    np.testing.assert_allclose(wrap(gradient(partial(hessian, f)))(x), third)
    fourth = gradient(gradient(gradient(gradient(f))))
    np.testing.assert_allclose(wrap(fourth)(x), third * (1 - 2 * s) - 2 * second**2)


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function])
def test_hessian_products_in_all_orders_of_modes(remote, wrap) -> None:
    f, x, v, s = remote("log1pexp"), tf.constant(X), tf.ones(3, tf.float64), 1 / (1 + np.exp(-X))
    for products in (
        lambda x, v: forward(lambda x: forward(f, x, v), x, v),
        lambda x, v: forward(gradient(f), x, v),
        lambda x, v: gradient(lambda x: forward(f, x, v))(x),
        lambda x, v: gradient(lambda x: gradient(f)(x) * v)(x),
    ):
        np.testing.assert_allclose(wrap(products)(x, v), s * (1 - s))


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function])
def test_tangents_of_several_inputs_and_outputs(remote, wrap) -> None:
    x, constant = tf.constant([5.0, 4.0, 3.0]), tf.constant(LABELS)
    y = wrap(partial(forward, remote("zero_out_indexed")))(x, x)
    np.testing.assert_array_equal(y[0], [5, 0, 0])
    only_x = wrap(partial(forward, lambda x: remote("squares")(x, x + 1)))(x, tf.ones(3))
    np.testing.assert_allclose(only_x, 2 * x * (x + 1) ** 2 + 2 * x**2 * (x + 1))
    one_input = wrap(partial(forward, lambda x: remote("squares")(x, [1.0, 2.0, 3.0])))(x, tf.ones(3))
    np.testing.assert_allclose(one_input, 2 * x * [1.0, 4.0, 9.0])
    logits = tf.constant(LOGITS)
    loss = partial(forward, lambda x: remote("softmax_cross_entropy")(x, constant))
    np.testing.assert_allclose(wrap(loss)(logits, tf.ones_like(logits)), [0, 0], atol=1e-12)


def test_gradients_of_a_v1_graph(remote) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        x = tf.constant(X)
        (g,) = tf.gradients(remote("log1pexp")(x), x)
        (h,) = tf.gradients(g, x)
        s = 1 / (1 + np.exp(-X))
        np.testing.assert_allclose(session.run([g, h]), [s, s * (1 - s)])


def test_control_flow(remote) -> None:
    f, x = remote("log1pexp"), tf.constant(X)

    def chain(step: Function, x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(3):
            x = tf.cond(tf.reduce_sum(x) > 0, partial(step, x), lambda x=x: x)
        return x

    # TensorFlow cannot vectorize a condition in a loop.
    for derived in (gradient, lambda f: partial(hessian, f, experimental_use_pfor=False)):
        want = tf.function(derived(partial(chain, tf.math.softplus)))(x)
        np.testing.assert_allclose(tf.function(derived(partial(chain, f)))(x), want, atol=1e-12)
    looked_up = tf.function(gradient(lambda x: tf.gather(f(x), [2, 2])))
    np.testing.assert_allclose(looked_up(x), [0, 0, 2 / (1 + np.exp(-2.0))])


@pytest.mark.parametrize("run", [derivative, tf.function(derivative)])
def test_inputs_that_are_not_differentiable_have_no_gradient(remote, run) -> None:
    by_logits, by_labels = run(remote("softmax_cross_entropy"), tf.constant(LOGITS), tf.constant(LABELS, tf.int64))
    assert by_logits.shape == (2, 3)
    assert by_labels is None
    pooled = run(lambda x, rois: remote("roi_pool")(x, rois)[0], tf.constant(FEATURES), tf.constant(ROIS))
    assert pooled[1] is None


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
def test_the_dtype_is_that_of_the_array(remote, dtype) -> None:
    f, x = remote("log1pexp"), tf.constant(X, dtype)
    for y in (f(x), tf.function(f)(x), gradient(f)(x), tf.function(partial(hessian, f))(x)):
        assert y.dtype == dtype
    assert f([0.5, 1]).dtype == tf.float32


@pytest.mark.parametrize("given", [[], [X], [X] * 3], ids=["none", "one", "three"])
def test_another_number_of_inputs_is_an_error_that_names_them(remote: Any, given: list[Any]) -> None:
    with pytest.raises(pullback.BadArgument, match=r"matvec: expected 2 arrays \(a, x\)"):
        remote("matvec")(*given)


def test_static_shapes_are_known_while_a_graph_is_traced(remote) -> None:
    s, eig = remote("softmax_cross_entropy"), remote("self_adjoint_eig")

    @tf.function(input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec([2], tf.int32), tf.TensorSpec([None, None])])
    def traced(logits: tf.Tensor, labels: tf.Tensor, matrix: tf.Tensor) -> tf.Tensor:
        loss = s(logits, labels)
        assert loss.shape[0] in (None, 2)
        assert gradient(lambda x: s(x, labels))(logits).shape.as_list() == [None, 3]
        assert [y.shape.as_list() for y in eig(matrix)] == [[None], [None, None]]
        return loss

    assert traced(LOGITS, LABELS, SYMMETRIC).shape == (2,)
    unknown = tf.function(remote("log1pexp"), input_signature=[tf.TensorSpec(None)])
    with pytest.raises(pullback.BadArgument, match="expected a tensor of known rank"):
        unknown(X)


def test_a_gradient_that_is_not_linear_has_a_vjp_and_says_why_it_has_no_jvp(remote) -> None:
    f, x = remote("clip_gradient"), tf.constant([0.5, 1.0])
    for way in (lambda f: f, tf.function):
        np.testing.assert_array_equal(way(gradient(lambda x: 3 * f(x)))(x), [0.5, 0.5])
        np.testing.assert_array_equal(way(partial(hessian, f))(x), np.zeros((2, 2)))
        with pytest.raises((pullback.Unprocessable, tf.errors.UnknownError), match="not linear in the cotangent"):
            way(partial(forward, f))(x, x)


def test_errors_have_the_words_of_the_service(remote) -> None:
    s, bad = remote("softmax_cross_entropy"), tf.constant([7, 0])
    words = "expected 0 <= label < 3, the number of classes, got 7"
    with pytest.raises(pullback.Unprocessable, match=words):
        s(LOGITS, bad)
    with pytest.raises(tf.errors.UnknownError, match=words):
        tf.function(s)(LOGITS, bad)
    for way in (lambda f: f, tf.function):
        with pytest.raises(pullback.BadArgument, match=r"labels: shape mismatch: expected \[N\] with N = 2, got \[3\]"):
            derivative(way(s), tf.constant(LOGITS), tf.constant([0, 0, 0]))
    with pytest.raises(pullback.NotFound, match="log1pex"):
        remote("log1pex")(1.0)


def everything(f: Function, x: tf.Tensor, v: tf.Tensor) -> Any:
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(f(x))
        g = tape.gradient(y, x)
    return y, g, outer.gradient(g, x, output_gradients=v)


def test_value_gradient_and_hvp_at_a_point_are_one_request(remote, count) -> None:
    f, v = remote("log1pexp"), tf.ones(3, tf.float64)
    for step, run in enumerate([everything, tf.function(everything)]):
        x = X + step
        y, g, hvp = run(f, tf.constant(x), v)
        s = 1 / (1 + np.exp(-x))
        np.testing.assert_allclose(y, np.log1p(np.exp(x)).sum())
        np.testing.assert_allclose([g, hvp], [s, s * (1 - s)], rtol=1e-12)
        assert count() == 1
    assert tf.function(f)(tf.constant(X + 9)).shape == (3,)
    assert count() == 1


def test_a_hessian_of_an_elementwise_op_is_one_request(remote, count) -> None:
    """An op whose second order is declared takes one for each row."""
    for name, most in [("log1pexp", 1), ("log1pexp2", 1 + 3)]:
        for step, run in enumerate([hessian, tf.function(hessian)]):
            x = tf.constant(X + step)
            count()
            run(remote(name), x)
            assert count() <= most, name


def test_what_nothing_uses_is_not_evaluated(remote, count) -> None:
    f = remote("log1pexp")
    unused = tf.function(lambda x: (f(x), x)[1])
    assert unused(tf.constant(X)).shape == (3,)
    assert count() == 0


def test_keras_trains_through_a_layer_and_a_loss(remote) -> None:
    """Training through remote ops takes the same steps as through TensorFlow's own."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(32, 3)).astype("float32")
    y = np.log1p(np.exp(x @ np.array([[1.0], [-2.0], [0.5]], "float32")))

    def losses(activation: Function) -> list[float]:
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.layers.Dense(1), keras.layers.Activation(activation)])
        model.compile(keras.optimizers.SGD(0.5), loss="mse", jit_compile=False)
        return model.fit(x, y, epochs=5, batch_size=16, verbose=0).history["loss"]

    found = losses(remote("log1pexp"))
    np.testing.assert_allclose(found, losses(tf.math.softplus), rtol=1e-4)
    assert found[-1] < found[0] / 10
    s = remote("softmax_cross_entropy")
    model = keras.Sequential([keras.layers.Dense(3)])
    loss = lambda labels, logits: s(logits, tf.cast(labels[:, 0], tf.int32))  # noqa: E731
    model.compile(keras.optimizers.SGD(0.5), loss=loss, jit_compile=False)
    found = model.fit(x, x.argmax(1)[:, None], epochs=5, verbose=0).history["loss"]
    assert found[-1] < found[0]
