"""Differentiation in a graph."""

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
