r"""The value of one function with the gradient of another, by ``tf.stop_gradient``: any f forward, any g backward.

With the attribute ``form`` as
- ``additive``: y = g + stop_gradient(f - g); dy/dx = g'(x), d²y/dx² = g''(x). Where |g| is larger than |f|, f - g loses
  bits of f: y is off by up to half a unit in the last place of g. Where g is infinite y is NaN;
- ``multiplicative``: y = stop_gradient(f / g) · g; dy/dx = f(x)/g(x) · g'(x), d²y/dx² = f(x)/g(x) · g''(x) (f/g is a
  constant for every derivative, so this is not the derivative of dy/dx). The value is exact to a unit or two in the
  last place. Where g is 0 or NaN, the value and every derivative are NaN. They are selected, not computed, because a
  compiler may simplify 0/0 · 0 to 0.

Kinks are those of g: relu has one at 0, hard_tanh at -1 and 1; sign and step jump at 0, round at every half: their
gradient is exactly 0 everywhere, where TensorFlow's own is ``None`` for some; as g they stop the gradient. At the kinks
it is 0 for relu and 1 for hard_tanh. step(0) = 0, and round takes halves to even.

Source: Bengio, Léonard and Courville, "Estimating or Propagating Gradients Through Stochastic Neurons" (2013); the form
t + stop_gradient(f - t) is folklore.
"""

from functools import partial
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from ops import (
    Array,
    Arrays,
    Attrs,
    Claim,
    Example,
    Function,
    Input,
    Op,
    Output,
    Surrogate,
    Tensor,
    additive,
    custom_gradient,
    multiplicative,
)

Name: TypeAlias = Literal[
    "sign", "round", "step", "relu", "identity", "tanh", "sigmoid", "hard_tanh", "square", "softplus"
]


class SurrogateAttrs(Attrs):
    """f, g and the form that joins them."""

    forward: Name = "sign"
    backward: Name = "hard_tanh"
    form: Literal["additive", "multiplicative"] = "additive"


def flat(x: Tensor, dy: Tensor) -> Tensor:
    """dx = 0, the gradient of a piecewise constant function."""
    return tf.zeros_like(dy)


def tf_sign(x: Tensor) -> Tensor:
    """y = sign(x), 0 for a subnormal x."""
    return tf.round(tf.sign(x))


def tf_step(x: Tensor) -> Tensor:
    """y = 1 where x > 0, else 0."""
    return tf.cast(x > 0, x.dtype)


def tf_hard_tanh(x: Tensor) -> Tensor:
    """y = x cut to [-1, 1]."""
    return tf.clip_by_value(x, -1, 1)


def np_step(x: Array) -> Array:
    """y = 1 where x > 0, else 0; the slope of relu."""
    return np.where(x > 0, 1.0, 0.0)


def np_relu(x: Array) -> Array:
    """y = max(x, 0)."""
    return np.maximum(x, 0.0)


def np_sigmoid(x: Array) -> Array:
    """y = 1 / (1 + e⁻ˣ), without overflow; the slope of softplus."""
    return (1 + np.tanh(x / 2)) / 2


def np_hard_tanh(x: Array) -> Array:
    """y = x cut to [-1, 1]."""
    return np.clip(x, -1.0, 1.0)


def np_softplus(x: Array) -> Array:
    """y = log(1 + eˣ)."""
    return np.logaddexp(0.0, x)


def zero_slope(x: Array) -> Array:
    """Return 0, the slope of sign, round and step."""
    return np.zeros_like(x)


def one_slope(x: Array) -> Array:
    """Return 1, the slope of identity."""
    return np.ones_like(x)


def tanh_slope(x: Array) -> Array:
    """Return 1 - tanh²x."""
    return 1 - np.tanh(x) ** 2


def sigmoid_slope(x: Array) -> Array:
    """Return σ(x) σ(-x)."""
    return np_sigmoid(x) * np_sigmoid(-x)


def hard_tanh_slope(x: Array) -> Array:
    """Return 1 where |x| <= 1, else 0."""
    return np.where(np.abs(x) <= 1, 1.0, 0.0)


def square_slope(x: Array) -> Array:
    """Return 2x."""
    return 2 * x


class Entry(NamedTuple):
    """One function: in TensorFlow, with its gradient; in NumPy; its slope in NumPy."""

    tensorflow: Function
    numpy: Function
    slope: Function


TABLE: dict[Name, Entry] = {
    "sign": Entry(custom_gradient(tf_sign, flat), np.sign, zero_slope),
    "round": Entry(custom_gradient(tf.round, flat), np.round, zero_slope),
    "step": Entry(custom_gradient(tf_step, flat), np_step, zero_slope),
    "relu": Entry(tf.nn.relu, np_relu, np_step),
    "identity": Entry(tf.identity, np.positive, one_slope),
    "tanh": Entry(tf.tanh, np.tanh, tanh_slope),
    "sigmoid": Entry(tf.sigmoid, np_sigmoid, sigmoid_slope),
    "hard_tanh": Entry(tf_hard_tanh, np_hard_tanh, hard_tanh_slope),
    "square": Entry(tf.square, np.square, square_slope),
    "softplus": Entry(tf.math.softplus, np_softplus, np_sigmoid),
}


def nan_unless(x: Tensor, ok: Tensor) -> Tensor:
    """Return x where ok, else NaN."""
    return tf.where(ok, x, tf.constant(np.nan, x.dtype))


def nan_unless_vjp(x: Tensor, ok: Tensor, dy: Tensor) -> tuple[Tensor, None]:
    """dx = dy where ok, else NaN."""
    return defined(dy, ok), None


defined = custom_gradient(nan_unless, nan_unless_vjp)


def surrogate(x: Tensor, *, forward: Name, backward: Name, form: str) -> Tensor:
    """y = f(x), with the gradient of g."""
    f, g = TABLE[forward].tensorflow, TABLE[backward].tensorflow
    if form == "additive":
        return additive(f, g)(x)
    ok = tf.abs(g(x)) > 0
    x = defined(x, ok)
    return tf.where(ok, multiplicative(f, g)(x), x)


def reference(x: Array, *, forward: Name, backward: Name, form: str) -> Array:
    """y = f(x); NaN where the multiplicative form divides by a g that is 0 or NaN."""
    x = np.asarray(x, np.float64)
    ok = (np.abs(TABLE[backward].numpy(x)) > 0) | (form == "additive")
    return np.where(ok, TABLE[forward].numpy(x), np.nan)


def sample(rng: np.random.Generator, dtype: str, attrs: SurrogateAttrs) -> dict[str, Array]:
    """Draw six numbers at least 0.1 from every kink, in (-3, 3), or in (0.5, 3), where no g is 0."""
    halves = rng.integers(1 if attrs.form == "multiplicative" else -6, 6, 6)
    x = halves / 2 + rng.uniform(0.1, 0.4, 6)
    return {"x": x.astype(tf.as_dtype(dtype).as_numpy_dtype)}


def only_g(primals: Arrays, at: Arrays, *, backward: Name) -> Arrays:
    """Return g(x)."""
    return (TABLE[backward].numpy(primals[0]),)


def ratio(at: Arrays, forward: Name, backward: Name) -> Array:
    """Return f/g, frozen; NaN where g is 0."""
    f, g = TABLE[forward].numpy(at[0]), TABLE[backward].numpy(at[0])
    return np.where(g == 0, np.nan, f / np.where(g == 0, 1, g))


def ratio_of_g(primals: Arrays, at: Arrays, *, forward: Name, backward: Name) -> Arrays:
    """Return f/g, frozen, times g(x)."""
    return (ratio(at, forward, backward) * TABLE[backward].numpy(primals[0]),)


def ratio_of_slope(primals: Arrays, cotangents: Arrays, at: Arrays, *, forward: Name, backward: Name) -> Arrays:
    """Return dy f/g, f/g frozen, times g'(x)."""
    return (cotangents[0] * ratio(at, forward, backward) * TABLE[backward].slope(primals[0]),)


def claim(attrs: SurrogateAttrs) -> Claim:
    """Claim the derivative of g; in the multiplicative form, of g times the frozen f/g, at both orders."""
    if attrs.form == "additive":
        return Claim(first=Surrogate(partial(only_g, backward=attrs.backward)))
    names = {"forward": attrs.forward, "backward": attrs.backward}
    return Claim(Surrogate(partial(ratio_of_g, **names)), Surrogate(partial(ratio_of_slope, **names)))


X = [-2.75, -0.75, -0.25, 0.25, 0.75, 1.75]
POSITIVE = [0.75, 0.875, 1.25, 2.75]
OP = Op(
    name="surrogate",
    summary="the value of one function with the gradient of another, by stop_gradient",
    doc=__doc__,
    function=surrogate,
    reference=reference,
    inputs=(Input("x", kinks=(-2.5, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.5)),),
    outputs=(Output("y"),),
    attrs=SurrogateAttrs,
    mechanism="stop_gradient",
    source="https://arxiv.org/abs/1308.3432",
    claim=claim,
    batching="elementwise",
    sample=sample,
    examples=(
        Example("sign_by_hard_tanh", {"x": X}),
        Example("step_by_sigmoid", {"x": X}, {"forward": "step", "backward": "sigmoid"}),
        Example("round_by_identity", {"x": X}, {"forward": "round", "backward": "identity"}),
        Example("relu_by_softplus", {"x": X}, {"forward": "relu", "backward": "softplus"}),
        Example(
            "multiplicative", {"x": POSITIVE}, {"forward": "round", "backward": "square", "form": "multiplicative"}
        ),
        Example("scaled_by_step", {"x": POSITIVE}, {"forward": "tanh", "backward": "step", "form": "multiplicative"}),
    ),
)
