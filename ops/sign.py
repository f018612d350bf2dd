r"""Binary activation with the straight-through gradient, by each of the three mechanisms that TensorFlow has.

y = sign(x), that is -1, 0 or 1; dy/dx = 1 where -1 <= x <= 1 and 0 elsewhere, the derivative of the clip (hard tanh),
not of the sign; d²y/dx² = 0. The clip has kinks at -1 and 1, where the cotangent passes. At ±inf and NaN it is stopped,
and y is ±1 and NaN. The sign of -0 is 0, and -0 under XLA. A subnormal number (below 1.2e-38 in float32, 2.2e-308
in float64) counts as 0: some of TensorFlow's kernels return it as its own sign and others 0, hence the rounding.

The three mechanisms agree bit for bit. For that the third is not the usual t + stop_gradient(f - t), which is off by
the rounding of f - t, but stop_gradient(f) - (stop_gradient(t) - t): the bracket is exactly +0 where t is finite, and
f - 0 is f, -0 included. Hence t = x where |x| <= 1 and 0 elsewhere, NaN included: t has the derivative of the clip, and
its value never leaves the op.

Source: Courbariaux et al., "Binarized Neural Networks" (2016).
"""

from typing import Literal

import numpy as np
import tensorflow as tf

from ops import Array, Arrays, Attrs, Claim, Example, Input, Op, Output, Surrogate, Tensor, custom_gradient, override


class SignAttrs(Attrs):
    """The mechanism that attaches the gradient; the values are the same."""

    mechanism: Literal["custom_gradient", "override_map", "stop_gradient"] = "custom_gradient"


def forward(x: Tensor) -> Tensor:
    """y = sign(x)."""
    return tf.round(tf.sign(x))


def vjp(x: Tensor, dy: Tensor) -> Tensor:
    """dx = dy where -1 <= x <= 1, 0 elsewhere."""
    return tf.where(tf.abs(x) <= 1, dy, tf.zeros_like(dy))


def vjp_vjp(x: Tensor, dy: Tensor, ddx: Tensor) -> tuple[Tensor, Tensor]:
    """Return 0 for x and, for dy, ddx where -1 <= x <= 1."""
    return tf.zeros_like(x), vjp(x, ddx)


def sign_gradient(op: tf.Operation, dy: Tensor) -> Tensor:
    """dx = dy where -1 <= x <= 1, as the gradient of the TensorFlow op ``Sign``."""
    return vjp(op.inputs[0], dy)


def round_gradient(op: tf.Operation, dy: Tensor) -> Tensor:
    """dx = dy, as the gradient of the TensorFlow op ``Round``."""
    return dy


def stopped(x: Tensor) -> Tensor:
    """y = f - (t - t) with t = x where |x| <= 1, 0 elsewhere, and all but the last t frozen."""
    t = tf.where(tf.abs(x) <= 1, x, tf.zeros_like(x))
    return tf.stop_gradient(forward(x)) - (tf.stop_gradient(t) - t)


MECHANISMS = {
    "custom_gradient": custom_gradient(forward, vjp, vjp_vjp),
    "override_map": override({"Sign": sign_gradient, "Round": round_gradient}, forward),
    "stop_gradient": stopped,
}


def sign(x: Tensor, *, mechanism: str) -> Tensor:
    """Return the sign of x, with the straight-through gradient by one of the mechanisms."""
    return MECHANISMS[mechanism](x)


def reference(x: Array, *, mechanism: str) -> Array:
    """y = sign(x)."""
    return np.sign(np.asarray(x, np.float64))


def clip(primals: Arrays, at: Arrays) -> Arrays:
    """Return x cut to [-1, 1], whose derivative this gradient is."""
    return (np.clip(primals[0], -1, 1),)


def claim(attrs: SignAttrs) -> Claim:
    """Claim the derivative of the clip, whatever the mechanism."""
    return Claim(first=Surrogate(clip))


X = [-2.5, -0.75, -0.25, 0.0, 0.5, 0.875, 3.0]
OP = Op(
    name="sign",
    summary="sign(x), whose gradient passes straight through where |x| <= 1",
    doc=__doc__,
    function=sign,
    reference=reference,
    inputs=(Input("x", kinks=(-1.0, 1.0)),),
    outputs=(Output("y"),),
    attrs=SignAttrs,
    mechanism="by_attribute",
    source="https://arxiv.org/abs/1602.02830",
    claim=claim,
    batching="elementwise",
    examples=(
        Example("custom_gradient", {"x": X}),
        Example("override_map", {"x": X}, {"mechanism": "override_map"}),
        Example("stop_gradient", {"x": X}, {"mechanism": "stop_gradient"}),
        Example("kinks", {"x": [-1.0, 1.0]}),
    ),
)
