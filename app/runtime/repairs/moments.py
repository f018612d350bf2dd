"""Corrections of variances, with which layers of Keras normalise.

TensorFlow 2.21 takes the mean for a constant in that of ``tf.nn.moments``, and in the gradient of a fused batch
normalization. That leaves the first order of each as it is, and makes the next one wrong.
"""

from types import SimpleNamespace
from typing import Any

import tensorflow as tf

# Private, because ``tf.nn.moments`` and the registered gradient call these functions there.
from tensorflow.python.ops import nn_fused_batch_norm_grad, nn_impl

from app.runtime.repairs.replacing import replace
from ops import Tensor


def install() -> None:
    """Let means be differentiated, in both APIs; call this before any program is built."""
    module: Any = nn_impl
    if module.moments is not _moments:
        replace(module.moments, _moments)
        gradient: Any = nn_fused_batch_norm_grad
        gradient.array_ops = SimpleNamespace(**vars(gradient.array_ops) | {"stop_gradient": tf.identity})


def _moments(  # noqa: PLR0917 - these are TensorFlow's
    x: Any,
    axes: Any,
    shift: object = None,
    name: str | None = None,
    keep_dims: bool | None = None,
    keepdims: bool | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the mean and the variance; those of float16 are computed in float32, as TensorFlow does."""
    del shift
    with tf.name_scope(name or "moments"):
        x = tf.convert_to_tensor(x)
        y = tf.cast(x, tf.float32) if x.dtype == tf.float16 else x
        mean = tf.reduce_mean(y, axes, keepdims=True)
        variance = tf.reduce_mean(tf.math.squared_difference(y, mean), axes, keepdims=True)
        if not (keepdims or keep_dims):
            mean, variance = tf.squeeze(mean, axes), tf.squeeze(variance, axes)
        return tf.cast(mean, x.dtype), tf.cast(variance, x.dtype)
