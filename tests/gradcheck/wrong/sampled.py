"""Faults beside the points that ``Op.sample`` draws: at equal and at negative indices, off symmetric matrices."""

import numpy as np
import tensorflow as tf

from ops import UNCOMPILED, Array, Example, Function, Input, InvalidInput, Op, Output, Tensor, custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.making import WIDE, made


def picked(x: Tensor, i: Tensor) -> Tensor:
    return tf.gather(x, tf.where(i < 0, i + tf.size(x, i.dtype), i))


def picked_reference(x: Array, i: Array) -> Array:
    return x[i]


def overwritten(x: Tensor, i: Tensor, dy: Tensor) -> tuple[Tensor, None]:
    return tf.tensor_scatter_nd_update(tf.zeros_like(x), tf.where(i < 0, i + tf.size(x, i.dtype), i)[:, None], dy), None


def dropped(x: Tensor, i: Tensor, dy: Tensor) -> tuple[Tensor, None]:
    """TensorFlow leaves out numbers of negative segments."""
    return tf.math.unsorted_segment_sum(dy, i, tf.size(x)), None


def in_range(inputs: dict[str, Array], attrs: object) -> None:
    n = len(inputs["x"])
    if not ((inputs["i"] >= -n) & (inputs["i"] < n)).all():
        raise InvalidInput("i", "out of range", expected="an index", got="another number")


def different_indices(rng: np.random.Generator, dtype: str, attrs: object) -> dict[str, Array]:
    return {"x": rng.uniform(-3, 3, 6), "i": rng.permutation(6)[:4]}


def picking(vjp: Function, name: str) -> Op:
    return made(
        custom_gradient(picked, vjp),
        picked_reference,
        (Input("x", WIDE, ("N",)), Input("i", ("int32",), ("M",), differentiable=False)),
        outputs=(Output("y", WIDE, ("M",)),),
        name=name,
        validate=in_range,
        sample=different_indices,
        examples=(Example("two", {"x": [0.5, -1.25, 2.0], "i": [2, 0]}),),
    )


def log_determinant_of(a: Tensor) -> Tensor:
    return tf.linalg.slogdet(a)[1]


def log_determinant_of_reference(a: Array) -> Array:
    return np.linalg.slogdet(a)[1]


def regular(inputs: dict[str, Array], attrs: object) -> None:
    if not np.linalg.cond(inputs["a"]) < 100:
        raise InvalidInput("a", "singular", expected="a regular matrix", got="another one")


def untransposed(a: Tensor, dy: Tensor) -> Tensor:
    return tf.linalg.inv(a) * dy


def symmetric(rng: np.random.Generator, dtype: str, attrs: object) -> dict[str, Array]:
    a = rng.uniform(-1, 1, (3, 3))
    return {"a": a + a.T + 4 * np.eye(3)}


OPS: dict[str, Planted] = {
    "equal indices that overwrite each other": Planted(picking(overwritten, "overwritten_indices"), ("derivative",)),
    "negative indices that are dropped": Planted(picking(dropped, "dropped_indices"), ("derivative",)),
    "a slope that is right for symmetric matrices": Planted(
        made(
            custom_gradient(log_determinant_of, untransposed),
            log_determinant_of_reference,
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
