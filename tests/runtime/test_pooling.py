"""The second order of max pooling in half precision has the numbers of float32, in graphs and in XLA."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import app.runtime.modes  # noqa: F401 - it installs the correction

POOLS = {2: tf.nn.max_pool2d, 3: tf.nn.max_pool3d}


def second_order(pool: Any, x: Any, ddx: Any) -> Any:
    with tf.GradientTape() as outer:
        dy = tf.ones_like(pool(x, 2, 2, "VALID"))
        outer.watch(dy)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = pool(x, 2, 2, "VALID")
        dx = inner.gradient(y, x, dy)
    return outer.gradient(dx, dy, ddx)


@pytest.mark.parametrize(("rank", "dtype"), [(2, "float16"), (2, "bfloat16"), (3, "bfloat16")])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_half_precision_has_the_numbers_of_float32(rank: int, dtype: str, is_compiled: bool) -> None:
    drawn = np.random.default_rng(0).normal(size=(2, 1, *(4,) * rank, 2))
    x, ddx = tf.cast(drawn[0], dtype), tf.cast(drawn[1], dtype)
    half = tf.function(lambda x, ddx: second_order(POOLS[rank], x, ddx), autograph=False, jit_compile=is_compiled)
    expected = second_order(POOLS[rank], tf.cast(x, tf.float32), tf.cast(ddx, tf.float32))
    found = half(x, ddx)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(tf.cast(found, tf.float32), expected)
    assert np.any(expected)
