"""Functions of TensorFlow with custom gradients, which hold only in arguments by position."""

import tensorflow as tf


@tf.custom_gradient
def right(x):
    return tf.sin(x), lambda dy: dy * tf.cos(x)


@tf.custom_gradient
def wrong(x):
    return tf.sin(x), lambda dy: 1.001 * dy * tf.cos(x)
