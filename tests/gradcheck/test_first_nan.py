"""A derivative that is not finite names the kernel of TensorFlow that gives the first NaN."""

import pytest
import tensorflow as tf

from tests.gradcheck.checking import entries, report
from tests.gradcheck.wrong.making import elementwise


def sinc(x):
    return tf.where(x == 0, tf.ones_like(x), tf.sin(x) / x)


def guarded_root(x):
    """The second order of the root is NaN below 0, where it does not count."""
    return tf.where(x > 0, tf.sqrt(x), tf.zeros_like(x))


def root_of_square(x):
    """At 0, the gradient is infinity times 0."""
    return tf.sqrt(x * x)


def in_a_loop(x):
    return tf.while_loop(lambda i, y: i < 1, lambda i, y: (i + 1, sinc(y)), [0, x])[1]


@pytest.mark.parametrize(
    ("function", "kernel"),
    [(sinc, "RealDiv"), (guarded_root, "Sqrt"), (root_of_square, "Mul"), (in_a_loop, "")],
    ids=lambda value: getattr(value, "__name__", value or "none"),
)
def test_the_finding_names_the_kernel(function, kernel: str) -> None:
    found = entries(report(elementwise(function, None, name="planted"), checks=["finite"]), "finite")
    assert found
    for entry in found:
        _, _, named = entry["sentence"].partition("; the first NaN comes from TensorFlow's kernel ")
        assert named == kernel
