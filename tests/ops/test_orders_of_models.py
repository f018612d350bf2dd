"""Orders 1 to 4 of models, in inputs and parameters, are those of closed forms.

An order is the gradient of the sum of the entries of the one before. Along x + s, w + s, b + s and v + s, that sum is
the derivative in s, so with T(k) the derivative of tanh(u(s)) in s, the sum of v tanh(w x + b) is v T(k) + k T(k - 1).
"""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from app.autodiff.admission import admit
from ops import MODES, Example, Input, Mode, Op, Output
from tests.ops.test_saved_models import found

X = np.array([[0.5], [-0.75], [0.2]])
W, B, V = np.array([[0.75, -1.25]]), np.array([0.1, 0.3]), np.array([[1.5], [-0.5]])
NAMES = {"x": "x", "w": "dense_kernel", "b": "dense_bias", "v": "dense_1_kernel"}


class Cubic(tf.Module):
    """w x³."""

    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(np.array([0.75, -1.25]))

    def __call__(self, x: Any) -> Any:
        return self.w * x**3


def net() -> Op:
    """Return the op of v tanh(w x + b), a dense net with two hidden units."""
    hidden = keras.layers.Dense(2, activation="tanh", name="dense", dtype="float64")
    last = keras.layers.Dense(1, use_bias=False, name="dense_1", dtype="float64")
    model = keras.Sequential([keras.Input((1,), dtype="float64"), hidden, last])
    hidden.set_weights([W, B])
    last.set_weights([V])
    return Op.from_keras(model, name="net", summary="", examples=(Example("one", {"x": X.tolist()}),))


def orders_of_net() -> list[dict[str, Any]]:
    """Return the entries of each order, rows first and hidden units last before they are summed."""
    u, u1, u2, v = X @ W + B, W + X + 1, 2.0, V[:, 0]
    t0 = np.tanh(u)
    t1 = 1 - t0 * t0
    t2, t3 = -2 * t0 * t1, t1 * (6 * t0 * t0 - 2)
    t4 = t1 * t0 * (16 - 24 * t0 * t0)
    sums = [t0, t1 * u1, t2 * u1**2 + t1 * u2, t3 * u1**3 + 3 * t2 * u1 * u2]

    def slopes(du: Any, du1: float) -> list[Any]:
        """The derivatives of ``sums`` in what moves u by du, and u1 by du1."""
        return [
            t1 * du,
            t2 * du * u1 + t1 * du1,
            t3 * du * u1**2 + 2 * t2 * u1 * du1 + t2 * du * u2,
            t4 * du * u1**3 + 3 * t3 * u1**2 * du1 + 3 * (t3 * du * u1 * u2 + t2 * du1 * u2),
        ]

    by_name = {"x": slopes(W, 1), "w": slopes(X, 1), "b": slopes(1.0, 0)}
    orders = list[dict[str, Any]]()
    for k in range(4):
        each = {name: v * of[k] + (k * of[k - 1] if k else 0) for name, of in by_name.items()}
        entry = {"x": each["x"].sum(axis=1, keepdims=True), "w": each["w"].sum(axis=0)[None]}
        orders.append({**entry, "b": each["b"].sum(axis=0), "v": sums[k].sum(axis=0)[:, None]})
    return orders


@pytest.mark.parametrize("mode", MODES)
def test_a_dense_net(mode: Mode) -> None:
    op = net()
    admit(op)
    values = found(op, mode, 4, X.tolist())
    np.testing.assert_allclose(values["outputs/y"], np.tanh(X @ W + B) @ V, rtol=1e-12)
    for order, expected in enumerate(orders_of_net()):
        for name, x in expected.items():
            got = values[f"gradients/{order}/{NAMES[name]}"]
            np.testing.assert_allclose(got, x, rtol=1e-9, atol=1e-12, err_msg=f"order {order + 1} in {name}")


@pytest.mark.parametrize("mode", MODES)
def test_a_polynomial_layer(mode: Mode) -> None:
    x, w, zero = np.array([[0.5, -1.0], [2.0, 0.25]]), np.array([0.75, -1.25]), np.zeros((2, 2))
    slots: Any = {"inputs": (Input("x", ("float64",), ("N", 2)),), "outputs": (Output("y", ("float64",), ("N", 2)),)}
    op = Op.from_module(Cubic(), name="net", summary="", examples=(Example("one", {"x": x.tolist()}),), **slots)
    admit(op)
    values = found(op, mode, 4, x.tolist())
    in_x = [3 * w * x**2, 6 * w * x + 3 * x**2, 6 * w + 12 * x, 18 + zero]
    in_w = [x**3, 3 * x**2, 6 * x, 6 + zero]
    for order in range(4):
        np.testing.assert_allclose(values[f"gradients/{order}/x"], in_x[order], rtol=1e-12)
        np.testing.assert_allclose(values[f"gradients/{order}/w"], in_w[order].sum(axis=0), rtol=1e-12)
