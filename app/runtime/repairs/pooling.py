"""A correction of TensorFlow's second order of max pooling: it may be 0 in a graph, and XLA lacks half precision.

Where the result has the size of the cotangent, as at stride 1, the kernels of TensorFlow 2.21 write it into the memory
of a cotangent that nothing else needs any more. They clear this memory before they read it. They only choose numbers,
so float32 computes them for half precision exactly.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

# Private, because TensorFlow's gradients call these functions by their private names.
from tensorflow.python.ops import gen_nn_ops

from ops import Tensor

KERNELS = {
    "MaxPoolGradGrad": "max_pool_grad_grad",
    "MaxPoolGradGradV2": "max_pool_grad_grad_v2",
    "MaxPool3DGradGrad": "max_pool3d_grad_grad",
}
"""The kernels, with the functions that call them."""
ARGUMENTS = ("orig_input", "orig_output", "grad")
HALVES = (tf.float16, tf.bfloat16)


def install() -> None:
    """Let every graph keep the cotangents of these kernels; call this before any program is built."""
    for kernel, name in KERNELS.items():
        for owner, called in ((gen_nn_ops, name), (tf.raw_ops, kernel)):
            function = getattr(owner, called)
            if not hasattr(function, "keeps_cotangent"):
                setattr(owner, called, _keeping(function))


def _keeping(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def kept(*args: Any, **named: Any) -> Tensor:
        given = dict(zip(ARGUMENTS, args, strict=False)) | named
        tensors = [tf.convert_to_tensor(given.pop(name)) for name in ARGUMENTS]
        cotangent = tensors[-1]
        if cotangent.dtype in HALVES:
            tensors = [tf.cast(x, tf.float32) for x in tensors]
        y = tf.cast(function(*tensors, *args[len(ARGUMENTS) :], **given), cotangent.dtype)
        return y if tf.executing_eagerly() else _beside(y, cotangent)

    kept.keeps_cotangent = True  # pyright: ignore[reportFunctionMemberAccess] - marks that it is installed
    return kept


def _beside(y: Tensor, cotangent: Tensor) -> Tensor:
    """Return ``y`` in such a way that the cotangent is needed until it is complete, and nothing simplifies that."""
    both = tf.concat([tf.reshape(y, [-1]), tf.reshape(cotangent, [-1])], axis=0)
    kept = tf.reshape(both[: tf.size(y)], tf.shape(y))
    kept.set_shape(y.shape)
    return kept
