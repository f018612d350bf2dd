"""Gradients of the kernels that compute gradients: the jvp, made of two vjps, and the second order."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import app.runtime.modes  # noqa: F401 - it installs the gradients

RNG = np.random.default_rng(0)
IMAGE = RNG.normal(size=(2, 5, 6, 3))
BOXES = [[0.1, 0.2, 0.8, 0.9], [0.0, 0.0, 1.0, 0.6]]
ROWS: dict[str, Any] = {"indices": [0, 2, 1, 0], "segment_ids": [0, 0, 1, 3]}
RAW: Any = tf.raw_ops


def resize(method: str, **more: Any) -> Callable[[Any], Any]:
    return lambda x: tf.image.resize(x, (7, 4), method, **more)


def safe_embedding(table: Any) -> Any:
    ids = tf.SparseTensor([[0, 0], [0, 1], [2, 0]], tf.constant([1, 3, 0], tf.int64), [3, 2])
    return tf.nn.safe_embedding_lookup_sparse(table, ids, default_id=2)


def filled_rows(values: Any) -> Any:
    sparse = tf.SparseTensor([[0, 0], [0, 1], [3, 0]], values[:3], [5, 2])
    return tf.sparse.fill_empty_rows(sparse, values[3])[0].values


# Linear functions: the tangent of one is the function at the tangent.
LINEAR: dict[str, tuple[Callable[[Any], Any], Any]] = {
    **{f"resize {each}": (resize(each), IMAGE) for each in ("bilinear", "nearest", "bicubic", "lanczos3")},
    "resize bilinear antialias": (resize("bilinear", antialias=True), IMAGE),
    "resize bilinear aligned": (lambda x: tf.compat.v1.image.resize_bilinear(x, (7, 4), align_corners=True), IMAGE),
    "resize nearest aligned": (
        lambda x: tf.compat.v1.image.resize_nearest_neighbor(x, (7, 4), align_corners=True),
        IMAGE,
    ),
    "resize bicubic aligned": (lambda x: tf.compat.v1.image.resize_bicubic(x, (7, 4), align_corners=True), IMAGE),
    "crop": (lambda x: tf.image.crop_and_resize(x, BOXES, [1, 0], (3, 4)), IMAGE),
    "crop nearest": (lambda x: tf.image.crop_and_resize(x, BOXES, [1, 0], (3, 4), "nearest"), IMAGE),
    "segment sum": (lambda x: tf.sparse.segment_sum(x, num_segments=5, **ROWS), IMAGE[0]),
    "segment mean": (lambda x: tf.sparse.segment_mean(x, num_segments=5, **ROWS), IMAGE[0]),
    "segment sqrt n": (lambda x: tf.sparse.segment_sqrt_n(x, num_segments=5, **ROWS), IMAGE[0]),
    "embedding": (safe_embedding, IMAGE[0, 0]),
    "fill empty rows": (filled_rows, np.arange(4.0) - 1.5),
}
QUANTIZED: dict[str, tuple[Callable[..., Any], Any]] = {
    "args": (lambda x: tf.quantization.fake_quant_with_min_max_args(x, -1.0, 0.5), [IMAGE]),
    "vars": (tf.quantization.fake_quant_with_min_max_vars, [IMAGE, -1.0, 0.5]),
    "channels": (
        tf.quantization.fake_quant_with_min_max_vars_per_channel,
        [IMAGE, np.float32([-1.0, -0.3, -0.5]), np.float32([0.5, 0.8, 2.0])],
    ),
    "argmax": (lambda x: tf.nn.max_pool_with_argmax(x, 2, 2, "SAME")[0], [IMAGE]),
    "argmax of the batch": (
        lambda x: tf.nn.max_pool_with_argmax(x, 2, 2, "SAME", include_batch_in_index=True)[0],
        [IMAGE],
    ),
}


def normalized(x: Any) -> Any:
    squares = tf.pad(x * x, [[0, 0]] * 3 + [[1, 1]])
    return x * (0.7 + 0.3 * sum(squares[..., i : i + 3] for i in range(3))) ** -0.6


def two_vjps(function: Callable[..., Any], xs: list[Any], vs: list[Any], dy: Any) -> tuple[Any, list[Any]]:
    """Return the jvp, as the gradient of the vjp in its cotangent, and the vjp at ``dy``."""
    with tf.GradientTape() as outer:
        outer.watch(dy)
        with tf.GradientTape() as inner:
            inner.watch(xs)
            y = function(*xs)
        dxs = [tf.convert_to_tensor(dx) for dx in inner.gradient(y, xs, dy)]
    return outer.gradient(dxs, dy, vs), dxs


def drawn(like: Any) -> Any:
    return tf.constant(RNG.normal(size=like.shape), tf.float32)


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("is_graph", [False, True])
def test_the_tangent_of_a_linear_function_is_its_value(name: str, is_graph: bool) -> None:
    function, numbers = LINEAR[name]
    x = tf.constant(numbers, tf.float32)
    v, dy = drawn(x), drawn(function(x))
    call = tf.function(two_vjps, autograph=False) if is_graph else two_vjps
    jvp, (dx,) = call(function, [x], [v], dy)
    np.testing.assert_allclose(jvp, function(v), atol=1e-5)
    np.testing.assert_allclose(tf.reduce_sum(dy * jvp), tf.reduce_sum(dx * v), atol=1e-3)


@pytest.mark.parametrize("name", QUANTIZED)
def test_the_tangent_of_what_selects_is_adjoint_to_its_gradient(name: str) -> None:
    function, numbers = QUANTIZED[name]
    xs = [tf.constant(each, tf.float32) for each in numbers]
    vs, dy = [drawn(x) for x in xs], drawn(function(*xs))
    jvp, dxs = two_vjps(function, xs, vs, dy)
    assert np.any(jvp)
    pairs = zip(dxs, vs, strict=True)
    np.testing.assert_allclose(tf.reduce_sum(dy * jvp), sum(tf.reduce_sum(dx * v) for dx, v in pairs), rtol=1e-4)


SMOOTH: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "softsign": (tf.nn.softsign, lambda x: x / (1 + tf.abs(x))),
    "normalized": (lambda x: tf.nn.local_response_normalization(x, 1, 0.7, 0.3, 0.6), normalized),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_the_second_order_is_that_of_the_formula(name: str) -> None:
    function, formula = SMOOTH[name]
    x = tf.constant(IMAGE, tf.float32)
    v, dy = drawn(x), drawn(x)

    def hvp(function: Callable[[Any], Any], *args: Any) -> Any:
        x, v, dy = args
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = function(x)
            dx = inner.gradient(y, x, dy)
        return outer.gradient(dx, x, v)

    expected = hvp(formula, *(tf.cast(each, tf.float64) for each in (x, v, dy)))
    np.testing.assert_allclose(hvp(function, x, v, dy), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(two_vjps(function, [x], [v], dy)[0], two_vjps(formula, [x], [v], dy)[0], atol=1e-5)


WITHOUT: dict[str, Callable[[Any], Any]] = {
    "HSVToRGB": lambda x: tf.image.hsv_to_rgb(tf.reshape(x, [1, 3])),
    "Range": lambda x: tf.range(x[0], 4.0),
    "LinSpace": lambda x: RAW.LinSpace(start=x[0], stop=x[1], num=3),
    "OneHot": lambda x: tf.one_hot([0, 2], 3, on_value=x[0], off_value=x[1]),
}


@pytest.mark.parametrize("kernel", WITHOUT)
def test_a_gradient_that_is_declared_to_be_0_and_is_not_is_an_error(kernel: str) -> None:
    x = tf.constant([0.1, 0.2, 0.3])

    def vjp(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(x) + tf.reduce_sum(WITHOUT[kernel](x))
        return tape.gradient(y, x)

    for call in (vjp, tf.function(vjp, autograph=False)):
        with pytest.raises(LookupError, match=kernel):
            call(x)
