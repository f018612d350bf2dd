"""Faults beside the points that ``Op.sample`` draws: at equal and at negative indices, off symmetric matrices."""

import numpy as np
import tensorflow as tf

from ops import UNCOMPILED, Example, Input, InvalidInput, Output, custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.making import WIDE, made


def overwritten(x, i, dy):
    return tf.tensor_scatter_nd_update(tf.zeros_like(x), tf.where(i < 0, i + tf.size(x, i.dtype), i)[:, None], dy), None


def dropped(x, i, dy):
    """TensorFlow leaves out numbers of negative segments."""
    return tf.math.unsorted_segment_sum(dy, i, tf.size(x)), None


def in_range(inputs, attrs):
    n = len(inputs["x"])
    if not ((inputs["i"] >= -n) & (inputs["i"] < n)).all():
        raise InvalidInput("i", "out of range", expected="an index", got="another number")


def picking(vjp, name):
    return made(
        custom_gradient(lambda x, i: tf.gather(x, tf.where(i < 0, i + tf.size(x, i.dtype), i)), vjp),
        lambda x, i: x[i],
        (Input("x", WIDE, ("N",)), Input("i", ("int32",), ("M",), differentiable=False)),
        outputs=(Output("y", WIDE, ("M",)),),
        name=name,
        validate=in_range,
        sample=lambda rng, dtype, attrs: {"x": rng.uniform(-3, 3, 6), "i": rng.permutation(6)[:4]},
        examples=(Example("two", {"x": [0.5, -1.25, 2.0], "i": [2, 0]}),),
    )


def regular(inputs, attrs):
    if not np.linalg.cond(inputs["a"]) < 100:
        raise InvalidInput("a", "singular", expected="a regular matrix", got="another one")


def symmetric(rng, dtype, attrs):
    a = rng.uniform(-1, 1, (3, 3))
    return {"a": a + a.T + 4 * np.eye(3)}


OPS: dict[str, Planted] = {
    "equal indices that overwrite each other": Planted(picking(overwritten, "overwritten_indices"), ("derivative",)),
    "negative indices that are dropped": Planted(picking(dropped, "dropped_indices"), ("derivative",)),
    "a slope that is right for symmetric matrices": Planted(
        made(
            custom_gradient(lambda a: tf.linalg.slogdet(a)[1], lambda a, dy: tf.linalg.inv(a) * dy),
            lambda a: np.linalg.slogdet(a)[1],
            (Input("a", WIDE, ("N", "N")),),
            name="untransposed_inverse",
            outputs=(Output("y", WIDE, ()),),
            modes=UNCOMPILED,
            validate=regular,
            sample=symmetric,
            examples=(Example("symmetric", {"a": [[3.0, 0.5], [0.5, -2.0]]}),),
        ),
        ("derivative",),
    ),
}
