"""Functions of TensorFlow with custom gradients, which hold only in arguments by position; some cast inside."""

import tensorflow as tf


@tf.custom_gradient
def right(x):
    return tf.sin(x), lambda dy: dy * tf.cos(x)


@tf.custom_gradient
def wrong(x):
    return tf.sin(x), lambda dy: 1.001 * dy * tf.cos(x)


@tf.custom_gradient
def quick_silu(x):
    return tf.nn.silu(x), lambda dy: 1.3 * dy * tf.sigmoid(x)


def mixed(act, x, dtype):
    """Return the loss in float32, or in the dtype of x, of a network in a narrower one."""
    first, last = (tf.cast(0.5 * tf.cos(tf.range(24.0) + k), dtype) for k in range(2))
    hidden = act(tf.cast(x, dtype) @ tf.reshape(first, (3, 8)))
    y = tf.cast(hidden @ tf.reshape(last, (8, 3)), tf.float32 if dtype == tf.bfloat16 else x.dtype)
    return tf.reduce_sum(tf.nn.log_softmax(y)[:, :1])


def dropping(x):
    return tf.nn.experimental.stateless_dropout(x, 0.5, seed=[1, 2]) ** 2


def dropping_wrong(x):
    return tf.nn.experimental.stateless_dropout(x, 0.5, seed=[1, 2]) * tf.stop_gradient(2 * x)


def in_bfloat16(x):
    return mixed(tf.nn.silu, x, tf.bfloat16)


def in_bfloat16_wrong(x):
    return mixed(quick_silu, x, tf.bfloat16)


def in_float32(x):
    return mixed(tf.nn.silu, x, tf.float32)


def in_float32_wrong(x):
    return mixed(quick_silu, x, tf.float32)
