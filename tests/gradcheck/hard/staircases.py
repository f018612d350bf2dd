"""Functions whose small steps are stairs: of cancellation, or of rounding with a claim on the gradient."""

from functools import partial

import numpy as np
import tensorflow as tf
from mpmath import mp
from pydantic import Field

from ops import FLOATS, Attrs, Claim, Input, Output, Surrogate, additive, custom_gradient
from tests.gradcheck.hard.exact import Hard, collected
from tests.gradcheck.hard.making import BOTH, SINGLE, WIDE, elementwise, structured

SPLITTER = 2.0**27 + 1
WHOLE = (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0)
HALVES = (-2.5, -1.5, -0.5, 0.5, 1.5, 2.5)


class LevelAttrs(Attrs):
    """The number of steps from 0 to 1."""

    levels: int = Field(default=16, ge=1, le=256)


class SlopeAttrs(Attrs):
    """How steep the surrogate is."""

    steepness: float = Field(default=2.0, gt=0)


def smooth_sign(primals, at, *, steepness):
    return (np.tanh(steepness * primals[0]),)


def straight(surrogate=(lambda primals, at: (primals[0],))):
    """Return the claim of the derivative of a surrogate."""

    def claim(attrs):
        return Claim(Surrogate(surrogate))

    return {"claim": claim}


def pass_through(x, dy):
    return dy


def sign(x, *, steepness):
    return tf.sign(x)


def sign_reference(x, *, steepness):
    return np.sign(x)


def sign_vjp(x, dy, *, steepness):
    """The derivative of tanh(kx), as 4k σ(2kx) σ(-2kx): without cancellation far out."""
    return 4 * steepness * tf.sigmoid(2 * steepness * x) * tf.sigmoid(-2 * steepness * x) * dy


def sign_vjp_vjp(x, dy, ddx, *, steepness):
    slope = sign_vjp(x, ddx, steepness=steepness)
    return -2 * steepness * tf.tanh(steepness * x) * slope * dy, slope


def upper_part(x):
    """The upper 26 bits of x."""
    scaled = SPLITTER * x
    return scaled - (scaled - x)


def upper_part_reference(x):
    scaled = SPLITTER * x
    return scaled - (scaled - x)


def shifted_sum(x):
    return tf.reduce_sum(x + 1e7, axis=-1) - 1e7 * tf.cast(tf.shape(x)[-1], x.dtype)


def softmax_reference(x, sharpness):
    e = np.exp(sharpness * (x - x.max(axis=-1, keepdims=True)))
    return e / e.sum(axis=-1, keepdims=True)


def exact_softmax(x, sharpness):
    def of_row(row):
        e = [mp.exp(sharpness * v) for v in row]
        return [v / mp.fsum(e) for v in e]

    return [of_row(row) for row in x]


def saturated_softmax_vjp(x, dy):
    s = tf.nn.softmax(500 * x)
    return 500 * s * (dy - tf.reduce_sum(s * dy, axis=-1, keepdims=True))


def rows(name, function, reference, dtypes, y):
    """Return an op of rows."""
    return structured(
        name,
        function,
        reference,
        {"x": [[1.0, 0.99, -1.0], [0.5, 0.5, 0.25]]},
        inputs=(Input("x", dtypes, ("N", "M"), domain=(-1.0, 1.0)),),
        outputs=(Output("y", dtypes, y),),
        batching="leading_axis",
    )


def offset(name, size):
    """Return x plus a number and minus it again."""

    def there_and_back(x):
        return (x + size) - size

    return Hard(elementwise(name, there_and_back, there_and_back, {"x": [0.1, 1.0, -3.0]}), lambda x: x + 0)


OPS = collected(
    Hard(
        rows(
            "sharp_softmax", lambda x: tf.nn.softmax(60 * x), partial(softmax_reference, sharpness=60), BOTH, ("N", "M")
        ),
        partial(exact_softmax, sharpness=60),
    ),
    Hard(
        rows(
            "saturated_softmax",
            custom_gradient(lambda x: tf.nn.softmax(500 * x), saturated_softmax_vjp),
            partial(softmax_reference, sharpness=500),
            BOTH,
            ("N", "M"),
        ),
        partial(exact_softmax, sharpness=500),
    ),
    offset("offset_by_1e8", 1e8),
    # The noise is as large as that of numbers rounded to float32.
    offset("offset_by_1e9", 1e9),
    Hard(
        elementwise(
            "square_on_1e8", lambda x: (tf.square(x) + 1e8 * tf.ones_like(x)) - 1e8, np.square, {"x": [0.1, 1.0, -3.0]}
        ),
        lambda x: x * x,
    ),
    Hard(
        elementwise(
            "sine_on_300",
            custom_gradient(lambda x: (tf.sin(x) + 300) - 300, lambda x, dy: tf.cos(x) * dy),
            np.sin,
            {"x": [0.1, 1.0, -3.0]},
            dtypes=SINGLE,
        ),
        mp.sin,
    ),
    Hard(
        rows("shifted_sum", shifted_sum, lambda x: x.sum(axis=-1), WIDE, ("N",)), lambda x: [mp.fsum(row) for row in x]
    ),
    Hard(elementwise("upper_part", upper_part, upper_part_reference, {"x": [0.1, 1.0, -3.0]}, **straight())),
    Hard(
        elementwise(
            "round_straight_through",
            custom_gradient(tf.round, pass_through),
            np.round,
            {"x": [0.4, 1.0, -2.5]},
            dtypes=FLOATS,
            slots={"x": {"kinks": HALVES}},
            **straight(),
        )
    ),
    Hard(
        elementwise(
            "floor_to_eighths",
            custom_gradient(lambda x: tf.floor(8 * x) / 8, pass_through, lambda x, dy, ddx: (tf.zeros_like(x), ddx)),
            lambda x: np.floor(8 * x) / 8,
            {"x": [0.4, 1.0, -2.5]},
            dtypes=BOTH,
            **straight(),
        )
    ),
    Hard(
        elementwise(
            "ceiling_by_stop_gradient",
            additive(tf.math.ceil, tf.identity),
            np.ceil,
            {"x": [0.4, 1.0, -2.5]},
            dtypes=BOTH,
            mechanism="stop_gradient",
            **straight(),
        )
    ),
    Hard(
        elementwise(
            "quantize",
            custom_gradient(
                lambda x, *, levels: tf.round(tf.clip_by_value(x, -1, 1) * levels) / levels,
                lambda x, dy, *, levels: tf.where(tf.abs(x) <= 1, dy, tf.zeros_like(dy)),
            ),
            lambda x, *, levels: np.round(np.clip(x, -1, 1) * levels) / levels,
            {"x": [0.4, 1.0, -2.5]},
            dtypes=BOTH,
            slots={"x": {"domain": (-2.0, 2.0), "kinks": (-1.0, 1.0)}},
            attrs=LevelAttrs,
            **straight(lambda primals, at: (np.clip(primals[0], -1, 1),)),
        )
    ),
    Hard(
        elementwise(
            "smooth_sign",
            custom_gradient(sign, sign_vjp, sign_vjp_vjp),
            sign_reference,
            {"x": [0.4, 1.0, -2.5, 0.0]},
            dtypes=BOTH,
            slots={"x": {"kinks": (0.0,)}},
            attrs=SlopeAttrs,
            claim=lambda attrs: Claim(Surrogate(partial(smooth_sign, steepness=attrs.steepness))),
        )
    ),
    Hard(
        elementwise(
            "sawtooth",
            lambda x: x - tf.stop_gradient(tf.floor(x)),
            lambda x: x - np.floor(x),
            {"x": [0.4, 0.999999, -2.5]},
            dtypes=BOTH,
            slots={"x": {"kinks": WHOLE}},
            mechanism="stop_gradient",
        ),
        lambda x: x - mp.floor(x),
    ),
    Hard(
        elementwise(
            "stairs_with_a_slope",
            custom_gradient(lambda x: x / 4 + tf.floor(x), lambda x, dy: dy / 4),
            lambda x: x / 4 + np.floor(x),
            {"x": [0.4, 1.5, -2.5]},
            slots={"x": {"kinks": WHOLE}},
        ),
        lambda x: x / 4 + mp.floor(x),
    ),
    Hard(
        elementwise(
            "log_of_shifted_exponential",
            lambda x: tf.math.log(tf.exp(x) + 1e6) - np.log(1e6),
            lambda x: np.log1p(np.exp(x) / 1e6),
            {"x": [0.4, 1.5, -2.5]},
        ),
        lambda x: mp.log1p(mp.exp(x) / 10**6),
    ),
)
