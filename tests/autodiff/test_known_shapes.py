"""The sizes that a declaration fixes are known while TensorFlow traces, in every mode."""

import numpy as np
import pytest
import tensorflow as tf

from app.autodiff.binding import bind
from app.autodiff.derivatives import Derivative, hvp, jvp, vjp
from app.autodiff.point import Point
from app.tensors.json import decode
from ops import MODES, Array, Example, Input, Mode, Op, Output, Tensor

SEEN: list[tuple[int | None, ...]] = []


def cross(x: Tensor, w: Tensor) -> Tensor:
    """y = x × w, by the sizes that are known."""
    SEEN.append(tuple(x.shape.as_list()))
    assert x.shape[-1] == w.shape[-1] == 3
    return tf.linalg.cross(x, w)


OP = Op(
    name="cross",
    summary="the cross product",
    doc=None,
    function=cross,
    inputs=(Input("x", shape=("N", 3)), Input("w", shape=("N", 3))),
    outputs=(Output("y", shape=("N", 3)),),
    mechanism="symbolic_gradient",
    source="a test",
    examples=(Example("axes", {"x": [[1.0, 0.0, 0.0]], "w": [[0.0, 1.0, 0.0]]}),),
)


def close(found: Derivative, expected: Array) -> None:
    np.testing.assert_allclose(np.asarray(found, np.float64), expected)


def point(mode: Mode) -> Point:
    [example] = OP.examples
    return bind(OP, example.inputs, {}, None, decode, mode=mode, device="", max_elements=1 << 20)


@pytest.mark.parametrize("mode", MODES)
def test_forward_and_derivatives_see_the_fixed_size(mode: Mode) -> None:
    SEEN.clear()
    at = point(mode)
    x, w = np.array([[1, 2, 3]], np.float32), np.array([[0, 1, 0]], np.float32)
    _, gradients = vjp(at, ("x",), {"y": x}, batched=False, outputs=False).run()
    close(gradients["x"], np.cross(w, x))
    close(jvp(at, {"x": x}, batched=False).run()["y"], np.cross(x, w))
    many = np.stack([x, 2 * x])
    _, rows = vjp(at, ("x",), {"y": many}, batched=True, outputs=False).run()
    close(rows["x"], np.cross(w, many))
    close(hvp(at, ("w",), {"y": x}, {"x": w}, batched=False).run()["w"], np.cross(x, w))
    assert {shape[-1] for shape in SEEN} == {3}
    assert {shape[0] for shape in SEEN} == ({1} if mode in ("eager", "xla") else {None})
