"""Networks as their users write them, in float32 and half precision: one wrong layer fails at every seed, none else."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from ops import Example, Input, Op, Output
from tests.gradcheck.checking import failed, report

CHECKS = ("derivative", "second", "sizes")


@tf.custom_gradient
def leaking_relu(x: Any) -> Any:
    """Pass a hundredth of the cotangent where x < 0."""
    return tf.nn.relu(x), lambda dy: tf.where(x > 0, dy, 0.01 * dy)


@tf.custom_gradient
def steep_tanh(x: Any) -> Any:
    """Return a gradient that is too large by 1 %."""
    y = tf.tanh(x)
    return y, lambda dy: 1.01 * dy * (1 - y * y)


class Model(NamedTuple):
    """A network with an activation, in its right form and with one mistake in it."""

    layers: Callable[[Any], Sequence[Any]]
    shape: tuple[int, ...]
    right: Any
    wrong: Any


MODELS = {
    "classifier": Model(
        lambda act: [layers.Dense(8, activation=act), layers.Dense(3, activation="softmax")], (4,), "relu", leaking_relu
    ),
    "regression": Model(lambda act: [layers.Dense(8, activation=act), layers.Dense(1)], (4,), "tanh", steep_tanh),
    "two_layers": Model(
        lambda act: [layers.Dense(8, activation=act), layers.Dense(6, activation=act), layers.Dense(2)],
        (3,),
        "relu",
        leaking_relu,
    ),
    "image": Model(
        lambda act: [layers.Conv2D(2, 3, activation=act), layers.MaxPooling2D(2), layers.Flatten(), layers.Dense(2)],
        (6, 6, 1),
        "relu",
        leaking_relu,
    ),
    "normalised": Model(
        lambda act: [layers.Dense(6), layers.BatchNormalization(), layers.Activation(act), layers.Dense(1)],
        (4,),
        "relu",
        leaking_relu,
    ),
    "sequence": Model(
        lambda act: [layers.GRU(3), layers.Dense(3, activation=act), layers.Dense(1)], (3, 2), "tanh", steep_tanh
    ),
}
POLICIES = ("mixed_float16", "mixed_bfloat16")
CASES_IN_HALF = [
    (name, policy, seed) for seed in range(5) for policy in POLICIES for name in ("classifier", "image", "normalised")
]
CASES_IN_FLOAT16 = [(name, seed) for name, policy, seed in CASES_IN_HALF if policy == "mixed_float16"]
CASES = [(name, seed) for seed in range(5) for name in MODELS]


@tf.custom_gradient
def larger_relu(x: Any) -> Any:
    """Return a gradient that is too large by 10 %."""
    return tf.nn.relu(x), lambda dy: tf.where(x > 0, tf.constant(1.1, dy.dtype) * dy, tf.zeros_like(dy))


@tf.custom_gradient
def still_relu(x: Any) -> Any:
    """Return a gradient of 0."""
    return tf.nn.relu(x), tf.zeros_like


def op_of(name: str, activation: Any, policy: str = "float32") -> Op:
    """Return the op of a network."""
    keras.utils.set_random_seed(0)
    model, before = MODELS[name], keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        network = keras.Sequential([keras.Input(model.shape), *model.layers(activation)])
    finally:
        keras.config.set_dtype_policy(before)
    x = np.random.default_rng(0).uniform(-1.5, 1.5, (2, *model.shape)).round(3).tolist()
    return Op.from_keras(
        network, name=name, summary="a network", batching="leading_axis", examples=(Example("two", {"x": x}),)
    )


@pytest.mark.slow
@pytest.mark.share(15)
@pytest.mark.parametrize(("name", "seed"), CASES)
def test_a_right_network_passes(name: str, seed: int) -> None:
    document = report(op_of(name, MODELS[name].right), checks=CHECKS, seed=seed)
    assert document["verdict"] == "pass", document["checks"]


@pytest.mark.slow
@pytest.mark.share(30)
@pytest.mark.parametrize(("name", "seed"), CASES)
def test_a_network_with_one_wrong_layer_fails(name: str, seed: int) -> None:
    document = report(op_of(name, MODELS[name].wrong), checks=CHECKS, seed=seed)
    assert "derivative" in failed(document)


@pytest.mark.slow
@pytest.mark.share(30)
@pytest.mark.parametrize(("name", "policy", "seed"), CASES_IN_HALF)
def test_a_right_network_in_half_precision_does_not_fail(name: str, policy: str, seed: int) -> None:
    document = report(op_of(name, "relu", policy), checks=(*CHECKS, "linearity", "adjoint"), seed=seed)
    assert document["verdict"] in ("pass", "inconclusive"), document["checks"]


@pytest.mark.slow
@pytest.mark.share(30)
@pytest.mark.parametrize(("name", "policy", "seed"), CASES_IN_HALF)
def test_a_layer_in_half_precision_without_a_gradient_fails(name: str, policy: str, seed: int) -> None:
    assert "derivative" in failed(report(op_of(name, still_relu, policy), checks=("derivative",), seed=seed))


@pytest.mark.slow
@pytest.mark.share(15)
@pytest.mark.parametrize(("name", "seed"), CASES_IN_FLOAT16)
def test_a_layer_in_float16_that_is_off_by_a_tenth_fails(name: str, seed: int) -> None:
    assert "derivative" in failed(report(op_of(name, larger_relu, "mixed_float16"), checks=("derivative",), seed=seed))


def pooled(curvature: float) -> Op:
    """Return an op of float32 alone, whose second order is 0, and wrong if it has a curvature."""

    @tf.custom_gradient
    def bent(x: Any) -> Any:
        return x + curvature * x * x, lambda dy: dy * tf.stop_gradient(1 + 2 * curvature * x)

    numbers = np.random.default_rng(0).normal(size=(1, 4, 4, 4, 1))
    return Op(
        name="pooled",
        summary="Relu and max pooling of volumes.",
        doc="y = max pooling of relu(x).",
        source="TensorFlow",
        function=lambda x: tf.nn.max_pool3d(tf.nn.relu(bent(x)), 2, 2, "SAME"),
        inputs=(Input("x", ("float32",), ("N", 4, 4, 4, 1)),),
        outputs=(Output("y", ("float32",), ("N", 2, 2, 2, 1)),),
        examples=(Example("volume", {"x": numbers.tolist()}),),
    )


@pytest.mark.parametrize("seed", [0, 3])
def test_a_second_order_that_is_0_in_float32_alone_is_told_from_a_lost_one(seed: int) -> None:
    curvatures = {0.0: "pass", 1e-5: "inconclusive", 1e-2: "fail", 1.0: "fail"}
    found = {each: report(pooled(each), checks=("second",), seed=seed)["verdict"] for each in curvatures}
    assert found == curvatures


@pytest.mark.parametrize("seed", [0, 4, 5, 9, 10, 11, 15, 22])
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "pass"), (1.02, "fail")])
def test_many_kinks_along_a_direction_are_no_slope(factor: float, verdict: str, seed: int) -> None:
    @tf.custom_gradient
    def steeper(x: Any) -> Any:
        return x, lambda dy: factor * dy

    numbers = np.random.default_rng(0).normal(size=(1, 4, 4, 4, 2))
    op = Op(
        name="volume",
        summary="Max pooling of a volume.",
        doc="y = max pooling of x.",
        source="TensorFlow",
        function=lambda x: tf.nn.max_pool3d(steeper(x), 2, 2, "SAME"),
        inputs=(Input("x", ("float32",), (1, 4, 4, 4, 2)),),
        outputs=(Output("y", ("float32",), (1, 2, 2, 2, 2)),),
        examples=(Example("volume", {"x": numbers.tolist()}),),
    )
    assert report(op, checks=("derivative",), seed=seed)["verdict"] == verdict


def eigenvalues(a: Any) -> Any:
    return tf.linalg.eigvalsh((a + tf.transpose(a)) / 2)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("function", [eigenvalues, lambda x: tf.nn.isotonic_regression(x)[0]])
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "pass"), (3.0, "fail")])
def test_many_kinks_that_meet_have_a_large_hull(function: Any, factor: float, verdict: str, seed: int) -> None:
    @tf.custom_gradient
    def steeper(x: Any) -> Any:
        return x, lambda dy: tf.where(tf.reduce_all(x == x[0, 0]), tf.cast(factor, dy.dtype), 1) * dy

    numbers, wide = np.random.default_rng(0).normal(size=(3, 3)), ("float64", "float32")
    op = Op(
        name="ties",
        summary="A function with kinks where numbers are equal.",
        doc="y = f(x).",
        source="TensorFlow",
        function=lambda x: function(steeper(x)),
        inputs=(Input("x", wide, (3, 3)),),
        outputs=(Output("y", wide, tuple(function(tf.constant(numbers)).shape)),),
        examples=(Example("matrix", {"x": numbers.tolist()}),),
    )
    assert report(op, checks=("derivative",), seed=seed)["verdict"] == verdict
