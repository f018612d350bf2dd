"""Differentiation in a graph."""

import numpy as np
import pytest
import tensorflow as tf

from app.runtime.calculus import Graph


def test_gradients_are_sums_of_two_terms() -> None:
    """A kernel that sums more terms starts with any of them, so that the last bits differ from run to run."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float64, [None])
        y = tf.sin(x) + tf.cos(x) + tf.tanh(x) + tf.exp(x) * x
        (dx,) = Graph().pullback([y], [x])(None)
    assert dx is not None
    counts = [len(operation.inputs) for operation in graph.get_operations() if operation.type == "AddN"]
    assert counts == [2] * 4


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
@pytest.mark.parametrize("shift", [1, -2])
def test_directions_through_a_roll_are_those_of_one_after_the_other(axis: int, shift: int) -> None:
    """TensorFlow's own vectorisation takes the last axis for that of the directions."""
    x, rows = tf.ones((3, 4)), tf.random.stateless_normal((2, 3, 4), (1, 2))

    @tf.function
    def many(x, rows):
        calculus = Graph()
        pullback = calculus.pullback([tf.roll(x * x, shift, axis)], [x])
        return calculus.each(pullback, [rows])[0], [pullback([row])[0] for row in tf.unstack(rows)]

    at_once, each = many(x, rows)
    np.testing.assert_array_equal(at_once, np.stack(each))
