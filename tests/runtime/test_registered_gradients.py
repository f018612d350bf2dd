"""Gradients that TensorFlow lacks, declares to be 0, or leaves terms out of: the jvp, made of two vjps, and order 2."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import gen_image_ops

import app.runtime.modes  # noqa: F401 - it installs the gradients
from app.errors import Unprocessable
from app.runtime.kernels import refuse_wrong_kernels

RNG = np.random.default_rng(0)
IMAGE = RNG.normal(size=(2, 5, 6, 3))
BOXES = [[0.1, 0.2, 0.8, 0.9], [0.0, 0.0, 1.0, 0.6]]
ROWS: dict[str, Any] = {"indices": [0, 2, 1, 0], "segment_ids": [0, 0, 1, 3]}
RAW: Any = tf.raw_ops


def resize(method: str, **more: Any) -> Callable[[Any], Any]:
    return lambda x: tf.image.resize(x, (7, 4), method, **more)


def safe_embedding(table: Any) -> Any:
    ids = tf.SparseTensor([[0, 0], [0, 1], [2, 0]], tf.constant([1, 5, 0], tf.int64), [3, 2])
    return tf.nn.safe_embedding_lookup_sparse(table, ids, default_id=3)


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


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_linear_resizing_has_the_gradient_of_float32_in_every_dtype(dtype: str, is_compiled: bool) -> None:
    def vjp(x: Any, dy: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.image.resize(x, (7, 4))
        return tape.gradient(y, x, dy)

    x, dy = tf.constant(IMAGE, dtype), tf.constant(RNG.normal(size=(2, 7, 4, 3)), tf.float32)
    found = tf.function(vjp, autograph=False, jit_compile=is_compiled)(x, dy)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, vjp(tf.cast(x, tf.float32), dy), rtol=2e-3, atol=2e-3)


def test_xla_refuses_the_adjoint_of_linear_resizing_in_another_dtype() -> None:
    def adjoint(dy: Any, x: Any) -> Any:
        return gen_image_ops.resize_bilinear_grad.__wrapped__(dy, x)

    image = [tf.TensorSpec([1, 2, 2, 1], dtype) for dtype in (tf.float32, tf.float64)]
    refuse_wrong_kernels(traced(adjoint, image[0], image[0]), "saved")
    with pytest.raises(Unprocessable, match="XLA's kernel ResizeBilinearGrad is wrong in this dtype"):
        refuse_wrong_kernels(traced(adjoint, *image), "saved")


def traced(function: Callable[..., Any], *specs: Any) -> Any:
    return tf.function(function, autograph=False).get_concrete_function(*specs).graph.as_graph_def()


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
    return tf.convert_to_tensor(outer.gradient(dxs, dy, vs)), dxs


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


def cumulative(x: Any, *, exclusive: bool = False, reverse: bool = False) -> Any:
    """Return cumulative products along the last axis, factor by factor."""
    columns = tf.unstack(x, axis=-1)[:: -1 if reverse else 1]
    products = [tf.ones_like(columns[0])]
    for column in columns:
        products.append(products[-1] * column)
    products = products[:-1] if exclusive else products[1:]
    return tf.stack(products[:: -1 if reverse else 1], axis=-1)


def products_of_rows(x: Any, rows: list[int]) -> Any:
    return cumulative(tf.transpose(tf.gather(x, rows)))[:, -1]


def batch_normalized(x: Any, scale: Any, offset: Any, *moments: Any) -> list[Any]:
    """Return the numbers, the mean and the unbiased variance of a batch normalization, with the default epsilon."""
    axes, count = [0, 1, 2], x.shape.num_elements() // 3
    mean, variance = moments or (tf.reduce_mean(x, axes), tf.math.reduce_variance(x, axes))
    y = (x - mean) * tf.math.rsqrt(variance + 1e-3) * scale + offset
    return [y, mean, variance * (1 if moments else count / (count - 1))]


def fused(x: Any, scale: Any, offset: Any, *moments: Any) -> list[Any]:
    return tf.compat.v1.nn.fused_batch_norm(x, scale, offset, *moments, is_training=not moments)


def joined(ys: list[Any]) -> Any:
    return tf.concat([tf.reshape(y, [-1]) for y in ys], 0)


def cross_entropy(logits: Any, labels: Any) -> Any:
    return -tf.reduce_sum(labels * tf.nn.log_softmax(logits), -1)


PRODUCTS = [[0.0, 1.3, 2.0, 0.5], [1.5, 0.0, 0.0, 3.0], [2.0, -1.5, 0.7, 1.1]]
IDS = {"": [0, 0, 0, 1], "unsorted_": [1, 0, 1, 1]}
COUNTS: dict[str, list[int]] = {"": [], "unsorted_": [2]}
ROWS_OF = {"": [[0, 1, 2], [3]], "unsorted_": [[1], [0, 2, 3]]}
CHANNELS = [[1.5, 0.7, 1.1], [0.1, -0.3, 0.2]]
ORDERS = [{"exclusive": exclusive, "reverse": reverse} for exclusive in (False, True) for reverse in (False, True)]
# Each with a formula of other kernels, and the inputs.
FORMULAS: dict[str, tuple[Callable[..., Any], Callable[..., Any], list[Any]]] = {
    "softsign": (tf.nn.softsign, lambda x: x / (1 + tf.abs(x)), [IMAGE]),
    "normalized": (lambda x: tf.nn.local_response_normalization(x, 1, 0.7, 0.3, 0.6), normalized, [IMAGE]),
    **{
        f"cumprod {way}": (
            lambda x, way=way: tf.math.cumprod(x, axis=1, **way),
            lambda x, way=way: cumulative(x, **way),
            [PRODUCTS],
        )
        for way in ORDERS
    },
    "product": (lambda x: tf.reduce_prod(x, 1), lambda x: cumulative(x)[:, -1], [PRODUCTS]),
    **{
        f"{each}segment_prod": (
            lambda x, each=each: getattr(tf.math, f"{each}segment_prod")(x, IDS[each], *COUNTS[each]),
            lambda x, each=each: tf.stack(
                [cumulative(tf.transpose(tf.gather(x, rows)))[:, -1] for rows in ROWS_OF[each]]
            ),
            [np.transpose(PRODUCTS)],
        )
        for each in ("", "unsorted_")
    },
    "partition": (
        lambda x: tf.dynamic_partition(x, [0, 1, 2, 0], 3)[0] * 3,
        lambda x: tf.gather(x, [0, 3]) * 3,
        [np.transpose(PRODUCTS)],
    ),
    "pad": (
        lambda x, c: tf.pad(x, [[1, 0], [0, 2]], constant_values=c),
        lambda x, c: c + tf.pad(x - c, [[1, 0], [0, 2]]),
        [PRODUCTS, 0.7],
    ),
    "batch": (lambda *xs: joined(fused(*xs)[:3]), lambda *xs: joined(batch_normalized(*xs)), [IMAGE, *CHANNELS]),
    "moments": (
        lambda *xs: joined(fused(*xs)[:3]),
        lambda *xs: joined(batch_normalized(*xs)),
        [IMAGE, *CHANNELS, [0.1, 0.4, -0.2], [0.5, 1.3, 2.0]],
    ),
    "cross entropy": (
        lambda logits, labels: tf.nn.softmax_cross_entropy_with_logits(labels, logits),
        cross_entropy,
        [PRODUCTS, [[0.1, 0.2, 0.3, 0.4], [0.0, 1.0, 0.0, 0.0], [0.5, 0.9, 0.0, 0.2]]],
    ),
}


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("mode", ["eager", "graph", "xla"])
def test_both_orders_are_those_of_the_formula(name: str, mode: str) -> None:
    function, formula, numbers = FORMULAS[name]
    if mode == "xla" and name == "segment_prod":
        return  # XLA has no such kernel
    xs = [tf.constant(each, tf.float32) for each in numbers]
    vs, dy = [drawn(x) for x in xs], drawn(function(*xs))

    def every(function: Callable[..., Any], xs: list[Any], vs: list[Any], dy: Any) -> list[Any]:
        with tf.GradientTape() as tape:
            tape.watch(xs)
            jvp, dxs = two_vjps(function, xs, vs, dy)
        again = tape.gradient(dxs, xs, vs, tf.UnconnectedGradients.ZERO)
        return [jvp, *dxs, *(tf.convert_to_tensor(each) for each in again)]

    call = every if mode == "eager" else tf.function(every, autograph=False, jit_compile=mode == "xla")
    wide = [[tf.cast(each, tf.float64) for each in named] for named in (xs, vs)]
    found, expected = call(function, xs, vs, dy), every(formula, *wide, tf.cast(dy, tf.float64))
    for value, number in zip(found, expected, strict=True):
        np.testing.assert_allclose(value, number, rtol=1e-4, atol=1e-4 * (1 + np.abs(number).max()))


@pytest.mark.parametrize("is_compiled", [False, True])
def test_the_gradient_of_cumulative_products_does_not_need_their_length(is_compiled: bool) -> None:
    def vjp(x: Any, dy: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.math.cumprod(x, axis=1)
        return tape.gradient(y, x, dy)

    x, dy = tf.constant(PRODUCTS), tf.constant(RNG.normal(size=(3, 4)), tf.float32)
    signature = [tf.TensorSpec([None, None])] * 2
    unknown = tf.function(vjp, input_signature=signature, autograph=False, jit_compile=is_compiled)
    np.testing.assert_allclose(unknown(x, dy), vjp(x, dy), rtol=1e-6, atol=1e-6)


UNKNOWN: dict[str, Callable[[Any], Any]] = {
    "Zeta in x": lambda x: tf.math.zeta(x, tf.constant([2.0, 3.0])),
    "Betainc in a": lambda x: tf.math.betainc(x, tf.constant([2.0, 3.0]), tf.constant([0.2, 0.3])),
    "Betainc in b": lambda x: tf.math.betainc(tf.constant([2.0, 3.0]), x, tf.constant([0.2, 0.3])),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_a_gradient_that_tensorflow_leaves_out_is_unknown(what: str) -> None:
    def vjp(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = UNKNOWN[what](x)
        return tape.gradient(y, x)

    x = tf.constant([1.5, 2.5])
    assert np.isnan(vjp(x)).all()
    assert np.isnan(tf.function(vjp, autograph=False)(x)).all()


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
