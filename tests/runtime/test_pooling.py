"""Derivatives of max pooling: those of the largest number of each window, in every mode, dtype and order."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import gen_nn_ops

import app.runtime.modes  # noqa: F401 - it installs the correction
from app.errors import Unprocessable
from app.runtime.kernels import refuse_wrong_kernels

POOLS = {2: tf.nn.max_pool2d, 3: tf.nn.max_pool3d}
WINDOWS = list(product([(1, 2), (3, 2), (5, 4)], [(1, 1), (2, 3)], ["SAME", "VALID"], [(5, 6), (8, 7)]))


def second_order(pool: Any, x: Any, ddx: Any) -> Any:
    with tf.GradientTape() as outer:
        dy = tf.ones_like(pool(x, 2, 2, "VALID"))
        outer.watch(dy)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = pool(x, 2, 2, "VALID")
        dx = inner.gradient(y, x, dy)
    return outer.gradient(dx, dy, ddx)


@pytest.mark.parametrize(("rank", "dtype"), [(2, "float16"), (2, "bfloat16"), (2, "float64"), (3, "bfloat16")])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_each_dtype_has_the_numbers_of_float32(rank: int, dtype: str, is_compiled: bool) -> None:
    drawn = np.random.default_rng(0).normal(size=(2, 1, *(4,) * rank, 2))
    # Of rounded numbers, some are equal.
    x, ddx = (tf.cast(tf.cast(each, "bfloat16"), dtype) for each in drawn)
    found = tf.function(lambda x, ddx: second_order(POOLS[rank], x, ddx), autograph=False, jit_compile=is_compiled)
    expected = second_order(POOLS[rank], tf.cast(x, tf.float32), tf.cast(ddx, tf.float32))
    assert found(x, ddx).dtype == x.dtype
    np.testing.assert_array_equal(tf.cast(found(x, ddx), tf.float32), expected)
    assert np.any(expected)


@pytest.mark.parametrize(("sizes", "steps", "padding", "shape"), WINDOWS)
def test_windows_of_every_kind_have_the_numbers_of_the_eager_kernel(
    sizes: tuple[int, int], steps: tuple[int, int], padding: str, shape: tuple[int, int]
) -> None:
    rng, windows = np.random.default_rng(0), {"ksize": [1, *sizes, 1], "strides": [1, *steps, 1], "padding": padding}
    x, dx = (tf.constant(rng.normal(size=(2, *shape, 3)), tf.float32) for _ in range(2))
    for numbers in (x, tf.round(2 * x), x * 1e-4 + 1):  # also equal ones, and those that bfloat16 does not tell apart
        y = tf.nn.max_pool(numbers, *windows.values())
        expected = gen_nn_ops.max_pool_grad_grad.__wrapped__(numbers, y, dx, **windows)

        def found(x: Any, y: Any, dx: Any) -> Any:
            return tf.raw_ops.MaxPoolGradGrad(orig_input=x, orig_output=y, grad=dx, **windows)

        unknown = tf.function(found, input_signature=[tf.TensorSpec([None] * 4)] * 3, autograph=False)
        for call in (found, unknown, tf.function(found, autograph=False, jit_compile=True)):
            np.testing.assert_array_equal(call(numbers, y, dx), expected)


def of_volume(x: Any, sizes: int, steps: int, padding: str, dy: Any) -> Any:
    """Return the gradient of max pooling of a volume, window by window."""
    dx, (depth, height, width) = np.zeros_like(x), x.shape[1:4]
    missing = [max((n - 1) * steps + sizes - m, 0) for n, m in zip(dy.shape[1:4], x.shape[1:4], strict=True)]
    starts = [each // 2 if padding == "SAME" else 0 for each in missing]
    for b, *window, c in np.ndindex(dy.shape):
        corner = [each * steps - start for each, start in zip(window, starts, strict=True)]
        places = [tuple(np.add(corner, offset)) for offset in np.ndindex(sizes, sizes, sizes)]
        inside = [(i, j, k) for i, j, k in places if 0 <= i < depth and 0 <= j < height and 0 <= k < width]
        dx[(b, *max(inside, key=lambda place: x[(b, *place, c)]), c)] += dy[(b, *window, c)]
    return dx


@pytest.mark.parametrize(("sizes", "steps", "padding"), [(2, 1, "SAME"), (2, 2, "VALID"), (3, 2, "SAME")])
@pytest.mark.parametrize("spread", [1.0, 1e-5, 0.0])
@pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
def test_the_gradient_of_a_volume_is_that_of_the_largest_numbers(
    sizes: int, steps: int, padding: str, spread: float, mode: str
) -> None:
    rng = np.random.default_rng(0)
    x = (1 + spread * rng.normal(size=(2, 3, 4, 5, 2))).astype(np.float32)

    def pulled(x: Any, dy: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.nn.max_pool3d(x, sizes, steps, padding)
        return tape.gradient(y, x, dy)

    dy = rng.normal(size=tf.nn.max_pool3d(x, sizes, steps, padding).shape).astype(np.float32)
    call = pulled if mode == "eager" else tf.function(pulled, autograph=False, jit_compile=mode == "xla")
    found = call(tf.constant(x), tf.constant(dy))
    np.testing.assert_allclose(found, of_volume(x, sizes, steps, padding, dy), atol=1e-6)
    options = {"ksize": [1, 1, *[sizes] * 3], "strides": [1, 1, *[steps] * 3], "padding": padding}
    first = [np.moveaxis(each, -1, 1) for each in (x, dy)]
    swapped = tf.raw_ops.MaxPool3DGrad(
        orig_input=first[0], orig_output=first[1], grad=first[1], data_format="NCDHW", **options
    )
    np.testing.assert_array_equal(np.moveaxis(swapped, 1, -1), found)


def near(x: Any) -> Any:
    """Return a function of pooled numbers, whose largest are next to each other."""
    return tf.reduce_sum(tf.nn.max_pool2d(x * 1e-4 + 1, 2, 1, "SAME") ** 4)


@pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
def test_each_order_is_that_of_the_numbers_that_are_chosen(mode: str) -> None:
    x = tf.constant(np.random.default_rng(0).normal(size=(1, 4, 4, 1)), tf.float64)
    v = tf.reshape(tf.range(16, dtype=x.dtype), x.shape)

    def nested(x: Any, order: int) -> Any:
        if order == 0:
            return near(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = nested(x, order - 1)
        return tf.reduce_sum(tape.gradient(y, x) * v)

    y, places = tf.nn.max_pool_with_argmax(x * 1e-4 + 1, 2, 1, "SAME")
    slope = tf.gather(tf.reshape(v, [-1]), places) * 1e-4
    for order, factor in enumerate((4, 12, 24), start=1):
        expected = tf.reduce_sum(factor * y ** (4 - order) * slope**order)
        derivative = lambda x, order=order: nested(x, order)  # noqa: E731
        call = derivative if mode == "eager" else tf.function(derivative, autograph=False, jit_compile=mode == "xla")
        np.testing.assert_allclose(call(x), expected, rtol=1e-12)


def test_what_the_kernel_does_not_have_is_an_error() -> None:
    x, ones = tf.ones((1, 4, 4, 1)), [1, 1, 1, 1]

    def second(ksize: Any) -> Any:
        return gen_nn_ops.max_pool_grad_grad_v2(x, x, x, ksize, ones, "VALID")

    with pytest.raises(ValueError, match='expected padding "SAME" or "VALID", got \'EXPLICIT\''):
        gen_nn_ops.max_pool_grad_grad(x, x, x, ones, ones, padding="EXPLICIT")
    with pytest.raises(ValueError, match="expected windows that are known while TensorFlow traces"):
        tf.function(second, autograph=False).get_concrete_function(tf.TensorSpec([4], tf.int32))
    np.testing.assert_array_equal(second(ones), x)


def test_xla_refuses_the_kernel_of_a_saved_model() -> None:
    def second(x: Any) -> Any:
        return gen_nn_ops.max_pool_grad_grad.__wrapped__(x, x, x, [1, 1, 1, 1], [1, 1, 1, 1], "SAME")

    graph = tf.function(second, autograph=False).get_concrete_function(tf.TensorSpec([1, 2, 2, 1])).graph
    with pytest.raises(Unprocessable, match="XLA's kernel MaxPoolGradGrad is wrong in TensorFlow"):
        refuse_wrong_kernels(graph.as_graph_def(), "saved")
