"""``==`` and ``!=`` compare the elements of tensors in every graph."""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from app.runtime import modes

OPERATORS: dict[str, tuple[Callable[[Any, Any], Any], list[bool]]] = {
    "==": (lambda a, b: a == b, [True, False, True]),
    "!=": (lambda a, b: a != b, [False, True, False]),
    "0 ==": (lambda a, _: 0 == a, [False, False, True]),  # noqa: SIM300 - Python asks the tensor, the second one
    "== of another shape": (lambda a, _: a == tf.ones([4], a.dtype), [False]),
}


# The import of the module that runs programs is enough.
assert modes.Trace


@pytest.mark.parametrize("is_in_function", [False, True])
@pytest.mark.parametrize(("compare", "expected"), OPERATORS.values(), ids=OPERATORS)
def test_elements_are_compared_in_a_graph(compare, expected: list[bool], is_in_function: bool) -> None:
    with tf.Graph().as_default() as graph:
        a, b = tf.constant([3.5, -2.0, 0.0]), tf.constant([3.5, 7.0, 0.0])
        found = tf.function(compare, autograph=False)(a, b) if is_in_function else compare(a, b)
        with tf.compat.v1.Session(graph=graph) as session:
            assert session.run(tf.reshape(found, [-1])).tolist() == expected


def test_a_tensor_of_a_graph_is_still_a_key() -> None:
    with tf.Graph().as_default():
        a, b = tf.constant(1.0), tf.constant(1.0)
        assert (a == None, a != None) == (False, True)  # noqa: E711 - the operators, with None
        assert {a: "a", b: "b"}[b] == "b"
        assert b.ref() in {a.ref(), b.ref()}
