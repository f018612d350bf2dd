"""Keras models as their users write them, each with an activation that is right, and with one that has a mistake."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from ops import Example, Op


def with_gradient(function: Callable[[Any], Any], backward: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """Return a function with a gradient by hand, ``backward(x, dy)``."""

    @tf.custom_gradient
    def found(x: Any) -> Any:
        return function(x), lambda dy: backward(x, dy)

    return found


def cdf(x: Any) -> Any:
    return 0.5 * (1 + tf.math.erf(x / 2**0.5))


def softmax_pulled(axis: int) -> Callable[[Any, Any], Any]:
    def backward(x: Any, dy: Any) -> Any:
        y = tf.nn.softmax(x)
        return y * (dy - tf.reduce_sum(y * dy, axis, keepdims=True))

    return backward


def mean(x: Any) -> Any:
    return tf.reduce_mean(x, 1)


def largest(x: Any) -> Any:
    return tf.reduce_max(x, 1)


def standardised(x: Any) -> Any:
    return (x - tf.reduce_mean(x, -1, keepdims=True)) / tf.math.reduce_std(x, -1, keepdims=True)


def cross_entropy(x: Any) -> Any:
    """Return the loss of each row if the right class is the first."""
    return -tf.nn.log_softmax(x)[..., :1]


leaking_relu = with_gradient(tf.nn.relu, lambda x, dy: tf.where(x > 0, dy, 0.01 * dy))
guided_relu = with_gradient(tf.nn.relu, lambda x, dy: tf.where(x > 0, tf.nn.relu(dy), tf.zeros_like(dy)))
shifted_relu = with_gradient(tf.nn.relu, lambda x, dy: tf.where(x > 0.2, dy, tf.zeros_like(dy)))
steep_tanh = with_gradient(tf.tanh, lambda x, dy: 1.01 * dy * (1 - tf.tanh(x) ** 2))
linear_tanh = with_gradient(tf.tanh, lambda x, dy: dy * (1 - tf.tanh(x)))
partial_gelu = with_gradient(tf.nn.gelu, lambda x, dy: dy * cdf(x))
detached_swish = with_gradient(tf.nn.silu, lambda x, dy: dy * tf.sigmoid(x))
unit_leaky = with_gradient(lambda x: tf.nn.leaky_relu(x, 0.1), lambda x, dy: tf.where(x > 0, dy, 0.2 * dy))
unscaled_mean = with_gradient(mean, lambda x, dy: tf.broadcast_to(dy[:, None], tf.shape(x)))
smeared_largest = with_gradient(largest, lambda x, dy: tf.where(x >= mean(x)[:, None], dy[:, None], tf.zeros_like(x)))
softmax_of_columns = with_gradient(tf.nn.softmax, softmax_pulled(0))
detached_standardised = with_gradient(standardised, lambda x, dy: dy / tf.math.reduce_std(x, -1, keepdims=True))
unlabelled = with_gradient(cross_entropy, lambda x, dy: dy * tf.nn.softmax(x))
negated = with_gradient(tf.identity, lambda _, dy: -dy)
half_elu = with_gradient(tf.nn.elu, lambda x, dy: dy * tf.where(x > 0, tf.ones_like(x), tf.exp(x) - 1))


class Model(NamedTuple):
    """A network with a function in it: the right one, and one with a mistake. Its example is random or ``tokens``."""

    build: Callable[[Any], Any]
    shape: tuple[int, ...]
    right: Any
    wrong: Any
    tokens: int = 0
    policy: str = "float32"


def sequential(*parts: Callable[[Any], Sequence[Any]] | Any) -> Callable[[Any, Any], Any]:
    """Return a builder of the layers."""
    return lambda x, act: [x := layer(x) for layer in parts[0](act)][-1]


def dense(*units: int) -> Callable[[Any, Any], Any]:
    """Return a builder of dense layers with the function between them."""
    return sequential(
        lambda act: [*(layers.Dense(each, activation=act) for each in units[:-1]), layers.Dense(units[-1])]
    )


def attention(x: Any, act: Any) -> Any:
    q, k, v = (layers.Dense(4, use_bias=bias)(x) for bias in (True, False, True))
    weights = layers.Activation(act)(keras.ops.matmul(q, keras.ops.transpose(k, (0, 2, 1))) / 2)
    return layers.LayerNormalization()(x + keras.ops.matmul(weights, v))


def transformer(x: Any, act: Any) -> Any:
    h = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 2)(x, x))
    return layers.Dense(1)(h + layers.Dense(4)(layers.Dense(6, activation=act)(h)))


def residual(x: Any, act: Any) -> Any:
    h = layers.Dense(5, activation=act)(x)
    return layers.Dense(2)(layers.Concatenate()([layers.Add()([h, layers.Dense(5, activation=act)(h)]), x]))


MODELS = {
    "relu": Model(dense(8, 3), (4,), "relu", leaking_relu),
    "deep_relu": Model(dense(6, 6, 3), (4,), "relu", guided_relu),
    "regression": Model(dense(8, 1), (4,), "tanh", steep_tanh),
    "linear": Model(sequential(lambda act: [layers.Dense(1, activation=act)]), (3,), "linear", negated),
    "gelu": Model(dense(8, 6, 2), (4,), tf.nn.gelu, partial_gelu),
    "swish": Model(dense(8, 2), (3,), "swish", detached_swish),
    "leaky_relu": Model(dense(8, 6, 2), (3,), lambda x: tf.nn.leaky_relu(x, 0.1), unit_leaky),
    "elu": Model(residual, (3,), "elu", half_elu),
    "convnet": Model(
        sequential(
            lambda act: [
                *(layers.Conv2D(3, 3, activation=act), layers.MaxPooling2D(2), layers.Conv2D(4, 2, activation=act)),
                *(layers.Flatten(), layers.Dropout(0.5), layers.Dense(3, activation="softmax")),
            ]
        ),
        (8, 8, 1),
        "relu",
        guided_relu,
    ),
    "batch_norm": Model(
        sequential(
            lambda act: [
                *(layers.Conv2D(3, 3, use_bias=False), layers.BatchNormalization(), layers.Activation(act)),
                *(layers.GlobalAveragePooling2D(), layers.Dense(2)),
            ]
        ),
        (5, 5, 2),
        "relu",
        shifted_relu,
    ),
    "embedding": Model(
        sequential(lambda act: [layers.Embedding(9, 4), layers.Lambda(act), layers.Dense(2)]),
        (3,),
        mean,
        unscaled_mean,
        tokens=9,
    ),
    "pooled": Model(
        sequential(lambda act: [layers.Conv1D(4, 2, activation="relu"), layers.Lambda(act), layers.Dense(2)]),
        (6, 2),
        largest,
        smeared_largest,
    ),
    "lstm": Model(
        sequential(lambda act: [layers.Embedding(9, 3), layers.LSTM(4, activation=act), layers.Dense(2)]),
        (4,),
        "tanh",
        linear_tanh,
        tokens=9,
    ),
    "bidirectional": Model(
        sequential(
            lambda act: [
                layers.Bidirectional(layers.GRU(3, dropout=0.3)),
                layers.Dense(3, activation=act),
                layers.Dense(1),
            ]
        ),
        (3, 2),
        "tanh",
        linear_tanh,
    ),
    "attention": Model(attention, (3, 4), "softmax", softmax_of_columns),
    "transformer": Model(transformer, (3, 4), tf.nn.gelu, partial_gelu),
    "layer_norm": Model(
        sequential(lambda act: [layers.Dense(6), layers.Activation(act), layers.Dense(2)]),
        (4,),
        standardised,
        detached_standardised,
    ),
    "cross_entropy": Model(
        sequential(lambda act: [layers.Dense(6, activation="relu"), layers.Dense(4), layers.Lambda(act)]),
        (4,),
        cross_entropy,
        unlabelled,
    ),
    "mixed_bfloat16": Model(dense(8, 3), (4,), tf.nn.gelu, partial_gelu, policy="mixed_bfloat16"),
    "mixed_float16": Model(dense(8, 6, 3), (4,), "relu", guided_relu, policy="mixed_float16"),
    "pooled_float16": Model(
        sequential(
            lambda act: [
                layers.Conv2D(4, 3, padding="same", activation=act),
                layers.MaxPooling2D(),
                layers.Conv2D(6, 3, activation=act),
                layers.Flatten(),
                layers.Dense(8, activation=act),
                layers.Dense(3),
            ]
        ),
        (8, 8, 1),
        "relu",
        guided_relu,
        policy="mixed_float16",
    ),
}


def op_of(name: str, *, is_wrong: bool) -> Op:
    """Return the op of a model, as Keras initialises it."""
    keras.utils.set_random_seed(0)
    model, before = MODELS[name], keras.config.dtype_policy()
    keras.config.set_dtype_policy(model.policy)
    try:
        x = keras.Input(model.shape, dtype="int32" if model.tokens else None)
        network = keras.Model(x, model.build(x, model.wrong if is_wrong else model.right))
    finally:
        keras.config.set_dtype_policy(before)
    rng, shape = np.random.default_rng(0), (2, *model.shape)
    drawn = rng.integers(0, model.tokens, shape) if model.tokens else rng.uniform(-1.5, 1.5, shape).round(3)
    return Op.from_keras(
        network,
        name=name,
        summary="a model",
        batching="leading_axis",
        examples=(Example("two", {"x": drawn.tolist()}),),
    )
