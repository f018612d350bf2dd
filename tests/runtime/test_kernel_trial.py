"""Kernels that no test has compared are tried at the first call of a graph."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import gen_nn_ops

from app.autodiff import derivatives
from app.errors import OpFailed
from app.runtime import kernel_trial, modes
from app.runtime.kernels import KERNELS
from ops import Input, Op, Output
from tests.autodiff.evaluations import point
from tests.gradcheck.wrong.making import WIDE, made


def op_of(function: Callable[..., Any]) -> Op:
    shape = ("A", "B", "C", "D")
    return made(function, None, [Input("x", WIDE, shape)], name="tried", outputs=(Output("y", WIDE, shape),))


def jvp(function: Callable[..., Any], mode: str = "graph") -> Any:
    at = point(op_of(function), {"x": np.random.default_rng(0).normal(size=(1, 3, 3, 2))}, "float64", mode)
    return derivatives.jvp(at, {"x": np.ones((1, 3, 3, 2))}, batched=False).run()["y"]


def pooled(x: tf.Tensor) -> tf.Tensor:
    return tf.nn.max_pool2d(x * x, 2, 1, "SAME")


def test_a_wrong_kernel_that_is_not_in_the_table_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    function: Any = gen_nn_ops.max_pool_grad_grad
    monkeypatch.setattr(gen_nn_ops, "max_pool_grad_grad", function.__wrapped__)
    assert not jvp(pooled).any()  # the table hides it
    monkeypatch.delitem(KERNELS, "MaxPoolGradGrad")
    with pytest.raises(OpFailed, match=r"MaxPoolGradGrad in a graph computes wrong numbers.* send this mode"):
        jvp(pooled)
    assert jvp(pooled, "eager").any()


def test_a_kernel_that_is_right_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(KERNELS, "MaxPoolGrad")
    np.testing.assert_array_equal(jvp(pooled), jvp(pooled, "eager"))


@pytest.mark.parametrize(
    ("function", "tried"),
    [
        (lambda x: tf.raw_ops.Bucketize(input=x, boundaries=[0.0]), ["Bucketize"]),
        (tf.sin, []),
        (lambda x: tf.numpy_function(np.sin, [tf.raw_ops.Bucketize(input=x, boundaries=[0.0])], tf.float64), []),
        (lambda x: tf.numpy_function(np.sin, [x], tf.float64, stateful=False), []),
        (lambda x: tf.map_fn(lambda row: tf.raw_ops.Bucketize(input=row, boundaries=[0.0]), x, tf.int32), []),
        (tf.function(lambda x: tf.raw_ops.Bucketize(input=x, boundaries=[0.0])), ["Bucketize"]),
    ],
    ids=["unknown", "known", "Python", "stateless Python", "a loop", "in a function"],
)
def test_which_kernels_are_tried(function: Callable[..., Any], tried: list[str]) -> None:
    graph = tf.function(function, autograph=False).get_concrete_function(tf.TensorSpec([3], tf.float64)).graph
    assert kernel_trial.untried(graph.as_graph_def()) == tried


def test_what_rounding_explains_is_no_fault() -> None:
    def rough(leaves: Any, factor: float = 1e14) -> Any:
        return {(0, "y"): np.sin(leaves[0] * factor)}

    x = [np.array([0.1, 0.7])]
    kernel_trial.compare(["Some"], x, lambda leaves: rough([leaves[0] * (1 + 1e-16 * 3)]), rough)
    with pytest.raises(modes.OpFault):
        kernel_trial.compare(["Some"], x, lambda leaves: rough(leaves, 2.0), lambda leaves: rough(leaves, 1.0))
