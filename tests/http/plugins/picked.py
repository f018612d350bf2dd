"""y = x[i] and the next indices, i + 1, in the dtype of i."""

from typing import Any

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, InvalidInput, Op, Output, Tensor

FLOATS, INTEGERS = ("float32", "float64"), ("int64", "int32")


def forward(x: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
    """Return x[i] and i + 1."""
    return tf.gather(x, i), i + 1


def reference(x: Array, i: Array) -> tuple[Array, Array]:
    """Return both, in NumPy."""
    return x[i], i + 1


def validate(inputs: Any, attrs: object) -> None:
    """Refuse indices that are out of range."""
    if not ((inputs["i"] >= 0) & (inputs["i"] < len(inputs["x"]))).all():
        raise InvalidInput("i", "out of range", expected="0 to N - 1", got="another")


def sample(rng: np.random.Generator, dtype: str, attrs: object) -> dict[str, Array]:
    """Draw indices that are in range."""
    return {"x": rng.uniform(-3, 3, 4), "i": rng.integers(0, 4, 3)}


OP = Op(
    name="picked",
    summary="the elements at these indices, and the next indices",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("x", FLOATS, ("N",)), Input("i", INTEGERS, ("M",), differentiable=False)),
    outputs=(Output("y", FLOATS, ("M",)), Output("next", INTEGERS, ("M",), differentiable=False)),
    validate=validate,
    sample=sample,
    source="a test",
    examples=(Example("two", {"x": [1.0, 2.0, 3.0], "i": [1, 0]}),),
)
