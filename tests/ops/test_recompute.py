"""Recomputation: less memory, the same numbers, and no gradient that is lost."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from ops import OpFault, Tensor, recompute

pytestmark = pytest.mark.slow
N, SEGMENTS, STEPS = 1 << 19, 8, 16  # tensors of 4 MB: the peak of TensorFlow's start is some 60 MB higher than its end


def segment(x: Tensor) -> Tensor:
    for _ in range(STEPS):
        x = tf.sin(x) * 1.5
    return x


def peak_growth(recomputes: bool, order: int) -> int:
    """Return by how many bytes the peak of this process grows, for derivatives through a chain of segments."""
    part = recompute(segment) if recomputes else segment

    @tf.function(autograph=False, input_signature=[tf.TensorSpec([None], tf.float64)])
    def derivative(x: Tensor) -> Tensor:
        y = x
        for _ in range(SEGMENTS):
            y = part(y)
        for _ in range(order):
            (y,) = tf.gradients(y, x)
        return y

    derivative(tf.ones([1], tf.float64))
    before = peak()
    derivative(tf.ones([N], tf.float64))
    return peak() - before


def peak() -> int:
    """Return the peak of this program's memory in bytes: ``ru_maxrss`` may be that of the process that started it."""
    (line,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return 1024 * int(line)


@pytest.mark.parametrize("order", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_the_backward_pass_keeps_a_part_of_the_memory(order: int) -> None:
    """In processes of their own, because the peak of a process never sinks."""
    grown = []
    for recomputes in (False, True):
        code = f"from tests.ops.test_recompute import peak_growth as f; print(f({recomputes}, {order}))"
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
        grown.append(int(found.stdout))
    plain, recomputed = grown
    assert plain > SEGMENTS * STEPS * N * 8 / 2
    assert recomputed < plain / 3


def test_several_inputs_and_outputs_integers_and_attributes() -> None:
    def function(x: Tensor, i: Tensor, y: Tensor, *, a: float, power: int) -> tuple[Tensor, Tensor]:
        return a * x**power * tf.cast(i, x.dtype), tf.gather(x * y, i)

    def derivatives(function, x, i, y):
        outer, inner = function(x, i, y, a=2.5, power=3)
        gradients = tf.gradients([outer, inner], [x, y], [x, 2 * y])
        return [*gradients, *tf.gradients(gradients, [x, y])]

    args = [tf.constant([0.5, -1.5, 2.0], tf.float64), tf.constant([2, 0, 2]), tf.constant([1.0, 2.0, 4.0], tf.float64)]
    plain, same = (
        tf.function(lambda *args, f=f: derivatives(f, *args), autograph=False)(*args)
        for f in (function, recompute(function))
    )
    np.testing.assert_allclose(np.stack(plain), np.stack(same), rtol=1e-14)


@pytest.mark.parametrize("inside", [lambda f, x: f(x), tf.map_fn], ids=["plain", "in a loop"])
def test_a_gradient_through_a_closure_is_not_lost(inside) -> None:
    @tf.function(autograph=False)
    def derivative(x: Tensor) -> Tensor:
        scale = tf.exp(x[0])
        return tf.gradients(inside(recompute(lambda x: x * scale), x), x)[0]

    with pytest.raises(OpFault, match="expected all tensors that have a derivative as arguments"):
        derivative(tf.ones([3]))


def test_constants_may_come_from_outside() -> None:
    three = tf.constant(3.0)

    @tf.function(autograph=False)
    def derivative(x: Tensor) -> Tensor:
        half = tf.constant(0.5) * three
        return tf.gradients(tf.map_fn(recompute(lambda x: x * x * half), x), x)[0]

    np.testing.assert_allclose(derivative(tf.constant([1.0, 2.0])), [3.0, 6.0])
