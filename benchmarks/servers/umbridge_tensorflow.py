"""UM-Bridge with the gradient in TensorFlow, one call per request: ``python umbridge_tensorflow.py PORT``."""

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
import umbridge
from aiohttp import web

VECTOR = tf.TensorSpec([None], tf.float32)


@tf.custom_gradient
def log1pexp(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """y = log1p(e^x) and dx = dy σ(x)."""

    def vjp(dy: tf.Tensor) -> tf.Tensor:
        return dy * tf.sigmoid(x)

    return tf.math.log1p(tf.exp(x)), vjp


@tf.function(input_signature=[VECTOR, VECTOR])
def log1pexp_vjp(x: tf.Tensor, dy: tf.Tensor) -> tf.Tensor:
    """dx, traced once for all lengths."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = log1pexp(x)
    return tape.gradient(y, x, output_gradients=dy)


class Log1pExp(umbridge.Model):
    """y = log1p(e^x) of any number of x."""

    def supports_gradient(self) -> bool:
        """The gradient is the only operation in use."""
        return True

    def gradient(
        self, out_wrt: int, in_wrt: int, parameters: list[list[float]], sens: list[float], config: dict[str, Any]
    ) -> Any:
        """dx, as an array: UM-Bridge writes lists much more slowly."""
        del out_wrt, in_wrt, config
        x, dy = np.asarray(parameters[0], np.float32), np.asarray(sens, np.float32)
        return log1pexp_vjp(tf.constant(x), tf.constant(dy)).numpy()


# By default it listens on every address. Its checks are off: they need the sizes in advance, and cost time.
web.run_app = functools.partial(web.run_app, host="127.0.0.1")
umbridge.serve_models([Log1pExp("log1pexp")], int(sys.argv[1]), error_checks=False)
