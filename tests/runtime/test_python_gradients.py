"""Functions of Python in a page: what TensorFlow leaves out of their gradients is an error, or NaN, and never 0."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from app.autodiff import derivatives
from app.autodiff.absent import Absent
from app.autodiff.binding import bind
from app.errors import OpFailed
from app.tensors.json import decode
from ops import Claim, Mode, Op, Tensor, custom_gradient
from tests.gradcheck.checking import entries, report
from tests.gradcheck.op_makers import elementwise

CPU = "/device:CPU:0"
X = np.array([1.0, 2.0])
MODES = ("eager", "graph", "v1")


def in_numpy(function: Callable[..., Any], *xs: Tensor, stateful: bool = False) -> Tensor:
    return tf.ensure_shape(tf.numpy_function(function, xs, tf.float64, stateful=stateful), xs[0].shape)


def in_python(function: Callable[..., Any], x: Tensor) -> Tensor:
    return tf.ensure_shape(tf.py_function(function, [x], tf.float64), x.shape)


def order(op: Op, mode: Mode, number: int) -> Any:
    """Return the first order at a cotangent of ones, the second along ones, or for 0 the jvp along ones."""
    ones = np.ones_like(X)
    at = bind(op, {"x": X.tolist()}, {}, None, decode, mode=mode, device=CPU, max_elements=1000)
    if number == 0:
        return derivatives.jvp(at, {"x": ones}, batched=False).run()["y"]
    if number == 2:
        return derivatives.hvp(at, ("x",), {"y": ones}, {"x": ones}, batched=False).run()["x"]
    return derivatives.second_order_values(at, {"y": ones}, {"x": ones}).run()["gradients", "x"]


def of(function: Callable[..., Any], **changes: Any) -> Op:
    return elementwise(function, batching="none", **changes)


MISSING = {
    "a term": lambda x: x + in_numpy(np.sin, x),
    "a term with a state": lambda x: x + in_numpy(np.sin, x, stateful=True),
    "the second order of a vjp": custom_gradient(tf.sin, lambda x, dy: dy * in_numpy(np.cos, x)),
    "all of a vjp": custom_gradient(tf.sin, lambda x, dy: in_numpy(lambda x, dy: np.cos(x) * dy, x, dy)),
}


@pytest.mark.parametrize("slot", [{}, {"shape": ("N",)}], ids=["any shape", "a vector"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("function", MISSING.values(), ids=MISSING)
def test_what_numpy_computes_has_no_gradient(function: Callable[..., Any], mode: Mode, slot: dict[str, Any]) -> None:
    op = of(function, slot=slot)
    if mode == "eager":
        assert np.isnan(order(op, mode, 2)).all()
        return
    with pytest.raises(OpFailed, match=r"no gradient of PyFunc\w*: that is tf.numpy_function; write it"):
        order(op, mode, 2)


@pytest.mark.parametrize(("claim", "verdict"), [({}, "fail"), ({"claim": lambda attrs: Claim(second=None)}, "pass")])
def test_a_page_that_computes_in_numpy_is_told_to_claim_no_second_order(claim: dict[str, Any], verdict: str) -> None:
    vjp = custom_gradient(lambda x: in_numpy(np.sin, x), lambda x, dy: dy * in_numpy(np.cos, x))
    document = report(of(vjp, modes=("graph", "eager"), slot={"shape": ("N",)}, **claim))
    assert document["verdict"] == verdict
    for entry in entries(document, "contract", "fail"):
        assert "that is tf.numpy_function" in entry["sentence"]
        assert "Claim(second=None)" in entry["sentence"]


@pytest.mark.parametrize("mode", MODES)
def test_a_vjp_in_numpy_has_a_first_order_and_a_second_that_its_page_writes(mode: Mode) -> None:
    def vjp(x: Tensor, dy: Tensor) -> Tensor:
        return dy * in_numpy(np.cos, x)

    def vjp_vjp(x: Tensor, dy: Tensor, ddx: Tensor) -> tuple[Tensor, Tensor]:
        return -dy * ddx * in_numpy(np.sin, x), ddx * in_numpy(np.cos, x)

    whole = of(custom_gradient(lambda x: in_numpy(np.sin, x), vjp, vjp_vjp))
    for number, expected in ((0, np.cos(X)), (1, np.cos(X)), (2, -np.sin(X))):
        np.testing.assert_allclose(order(whole, mode, number), expected)
    np.testing.assert_allclose(order(of(custom_gradient(tf.sin, vjp)), mode, 0), np.cos(X))


@pytest.mark.parametrize("mode", MODES)
def test_numbers_of_numpy_that_are_constants_need_no_gradient(mode: Mode) -> None:
    def sorted_twice(x: Tensor) -> Tensor:
        places = tf.numpy_function(np.argsort, [x], tf.int64, stateful=False)
        return 2 * tf.gather(x, tf.ensure_shape(places, x.shape))

    after, before = (
        of(lambda x: x * tf.stop_gradient(in_numpy(np.sin, x))),
        of(lambda x: x * in_numpy(np.sin, tf.stop_gradient(x))),
    )
    for weighted in (after, before):
        np.testing.assert_allclose(order(weighted, mode, 0), np.sin(X))
        np.testing.assert_allclose(order(weighted, mode, 1), np.sin(X))
        assert order(weighted, mode, 2) is Absent.DISCONNECTED
    np.testing.assert_allclose(order(of(sorted_twice), mode, 1), [2.0, 2.0])


@pytest.mark.parametrize("mode", MODES)
def test_the_second_order_of_a_function_of_python_is_nan(mode: Mode) -> None:
    op = of(lambda x: x + in_python(tf.sin, x))
    for number in (0, 1):
        np.testing.assert_allclose(order(op, mode, number), 1 + np.cos(X))
    assert np.isnan(order(op, mode, 2)).all()


def test_what_fails_has_derivatives_that_fail_too() -> None:
    """Where a graph computes the second order alone, the first is pruned."""

    def second(x: Tensor) -> Tensor:
        (dx,) = tf.gradients(x + in_numpy(np.sin, x), x)
        return tf.gradients(dx, x)[0]

    traced = tf.function(second, input_signature=[tf.TensorSpec([None], tf.float64)], autograph=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match="no_gradient_of_PyFuncStateless"):
        traced(tf.constant(X))
