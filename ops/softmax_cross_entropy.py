r"""The cross entropy of softmax(logits) against class labels, fused, with both orders of its gradient written by hand.

y = log Σⱼ exp(xⱼ) - x_label for each row x of logits, in nats; with p = softmax(x), dy/dx = p - onehot(label) and
d²y/dx² = diag(p) - p pᵀ. Smooth everywhere. Logits of ±1e4 are fine: the largest is subtracted first. A logit of -inf
is a class with p = 0. Labels have no gradient; a label that names no class is refused.

Source: the TensorFlow guide's fused ops with ``tf.custom_gradient``; Bishop, "Pattern Recognition and Machine Learning"
(2006), section 4.3.4, for both derivatives.
"""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from ops import Array, Attrs, Example, Input, InvalidInput, Op, Output, Tensor, custom_gradient


def is_label(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the one-hot mask (N, C) of the labels."""
    return tf.equal(tf.range(tf.shape(logits)[-1]), tf.expand_dims(labels, -1))


def residual(logits: Tensor, labels: Tensor) -> Tensor:
    """Return p - onehot(label), (N, C)."""
    return tf.nn.softmax(logits) - tf.cast(is_label(logits, labels), logits.dtype)


def forward(logits: Tensor, labels: Tensor) -> Tensor:
    """y = log Σⱼ exp(zⱼ) - z_label with z = logits - max(logits)."""
    z = logits - tf.reduce_max(logits, axis=-1, keepdims=True)
    own = tf.reduce_sum(tf.where(is_label(logits, labels), z, tf.zeros_like(z)), axis=-1)
    return tf.math.log(tf.reduce_sum(tf.exp(z), axis=-1)) - own


def vjp(logits: Tensor, labels: Tensor, dy: Tensor) -> tuple[Tensor, None]:
    """dx = (p - onehot(label)) dy; labels have none."""
    return residual(logits, labels) * tf.expand_dims(dy, -1), None


def vjp_vjp(logits: Tensor, labels: Tensor, dy: Tensor, ddx: Tensor) -> tuple[Tensor, None, Tensor]:
    """Return (diag(p) - p pᵀ) ddx dy for logits, nothing for labels and (p - onehot(label))·ddx for dy."""
    p = tf.nn.softmax(logits)
    mean = tf.reduce_sum(p * ddx, axis=-1, keepdims=True)
    of_dy = tf.reduce_sum(residual(logits, labels) * ddx, axis=-1)
    return tf.expand_dims(dy, -1) * p * (ddx - mean), None, of_dy


def reference(logits: Array, labels: Array) -> Array:
    """y = log Σⱼ exp(xⱼ) - x_label."""
    x = np.asarray(logits, np.float64)
    return np.logaddexp.reduce(x, axis=-1) - x[np.arange(len(x)), labels]


def validate(inputs: Mapping[str, Array], attrs: Attrs) -> None:
    """Refuse a label that names no class."""
    classes, labels = inputs["logits"].shape[-1], inputs["labels"]
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        index = (int(wrong[0]),)
        expected = f"0 <= label < {classes}, the number of classes"
        raise InvalidInput("labels", "a label names no class", expected=expected, got=str(labels[index]), index=index)


def sample(rng: np.random.Generator, dtype: str, attrs: Attrs) -> dict[str, Array]:
    """Draw logits (4, 3) and labels for them."""
    logits = rng.uniform(-3, 3, (4, 3)).astype(tf.as_dtype(dtype).as_numpy_dtype)
    return {"logits": logits, "labels": rng.integers(0, 3, 4, dtype=np.int32)}


OP = Op(
    name="softmax_cross_entropy",
    summary="cross entropy of softmax(logits) against labels, fused, with a hand-written gradient of both orders",
    doc=__doc__,
    function=custom_gradient(forward, vjp, vjp_vjp),
    reference=reference,
    inputs=(
        Input("logits", shape=("N", "C")),
        Input("labels", dtypes=("int32",), shape=("N",), differentiable=False, doc="the class of each row, from 0"),
    ),
    outputs=(Output("loss", shape=("N",), doc="in nats"),),
    source="https://www.tensorflow.org/api_docs/python/tf/custom_gradient",
    batching="leading_axis",
    validate=validate,
    sample=sample,
    examples=(
        Example("rows", {"logits": [[1.0, -0.5, 2.0], [0.25, 0.0, -3.0]], "labels": [2, 0]}),
        Example("extreme", {"logits": [[1e4, -1e4, 0.0], [1e4, -1e4, 0.0]], "labels": [0, 1]}),
    ),
)
