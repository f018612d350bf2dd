"""What ``test_all.py`` needs of TensorFlow."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

WAYS = {"eager": lambda f: f, "graph": tf.function}
# What a program raises in place of our errors.
WRAPPED = (tf.errors.UnknownError,)
IS_THREADED = True
softplus = tf.math.softplus


def value_and_gradient(f: Callable[..., Any], way: Any) -> Callable[[np.ndarray], tuple[Any, Any]]:
    def run(x: tf.Tensor) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(f(x))
        return y, tape.gradient(y, x)

    run = way(run)
    return lambda x: run(tf.constant(x))


def hessian(f: Callable[..., Any], way: Any) -> Callable[[np.ndarray], Any]:
    def run(x: tf.Tensor) -> Any:
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.reduce_sum(f(x))
            gradient = tape.gradient(y, x)
        return outer.jacobian(gradient, x)

    run = way(run)
    return lambda x: run(tf.constant(x))
