"""The kernels of roi_pool, with arbitrary inputs: they return the right result or refuse, and stay in bounds.

``make sanitize`` runs this file with kernels that check every access to memory.
"""

from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.roi_pool import kernels, reference

CASES = 600
FAR = 2.0**30
NUMBERS = (0.0, 1.0, -1.0, 2.5, -0.0, np.inf, -np.inf, np.nan)
PLACES = st.one_of(
    st.integers(-12, 12).map(lambda n: n / 2),
    st.integers(-(2**31), 2**31).map(float),
    st.sampled_from([np.nan, np.inf, -np.inf, FAR, -FAR, 2 * FAR, 1e30]),
)
IMAGES = st.one_of(st.integers(-1, 3).map(float), st.sampled_from([0.5, np.nan, np.inf, -np.inf, 1e20]))
SCALES = (1.0, 0.5, 0.25, 2.0)


class Call(NamedTuple):
    """The arguments of one call of the kernels."""

    features: np.ndarray
    rois: np.ndarray
    attrs: dict

    @property
    def pooled_shape(self):
        return len(self.rois), self.attrs["pooled_height"], self.attrs["pooled_width"], self.features.shape[3]

    @property
    def is_valid(self) -> bool:
        scale = self.attrs["spatial_scale"]
        image, corners = self.rois[:, 0], self.rois[:, 1:] * scale
        return set(image) <= set(range(len(self.features))) and bool((np.abs(corners) <= FAR).all())


@st.composite
def calls(draw) -> Call:
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    shape = [draw(st.integers(low, high)) for low, high in ((0, 2), (0, 5), (0, 5))]
    channels = draw(st.sampled_from([0, 1, 2, 15, 16, 17, 33, 70]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    features = rng.choice(NUMBERS, (*shape, channels)).astype(dtype)
    images = st.integers(0, max(0, shape[0] - 1)).map(float) if draw(st.booleans()) else IMAGES
    places = st.integers(-12, 12).map(lambda n: n / 2) if draw(st.booleans()) else PLACES
    rows = draw(st.lists(st.tuples(images, places, places, places, places), max_size=3))
    rois = np.array(rows, dtype).reshape(-1, 5)
    height, width = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    attrs = {"pooled_height": height, "pooled_width": width, "spatial_scale": draw(st.sampled_from(SCALES))}
    return Call(features, rois, attrs)


@pytest.mark.slow
@settings(max_examples=CASES, deadline=None)
@given(calls())
def test_the_kernel_matches_the_reference_or_refuses(call: Call) -> None:
    if not call.is_valid:
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"rois: expected .* at \[\d, \d\], got "):
            kernels.pullback_roi_pool(call.features, call.rois, **call.attrs)
        return
    pooled, argmax = kernels.pullback_roi_pool(call.features, call.rois, **call.attrs)
    expected_pooled, expected_argmax = reference(call.features, call.rois, **call.attrs)
    np.testing.assert_array_equal(argmax, expected_argmax)
    np.testing.assert_array_equal(pooled, expected_pooled)


@pytest.mark.slow
@settings(max_examples=CASES, deadline=None)
@given(calls(), st.integers(0, 2**32 - 1), st.sampled_from([0, 0, 1, 2**30]))
def test_the_linear_kernels_follow_the_argmax_or_refuse_it(call: Call, seed: int, beyond: int) -> None:
    rng = np.random.default_rng(seed)
    _, height, width, _ = call.features.shape
    argmax = rng.integers(-1 - beyond, height * width + beyond, call.pooled_shape).astype(np.int32)
    dy = rng.integers(-8, 9, call.pooled_shape).astype(call.features.dtype)
    inside = (argmax >= -1) & (argmax < height * width)
    if not (call.is_valid and inside.all()):
        with pytest.raises(tf.errors.InvalidArgumentError, match="expected"):
            kernels.pullback_roi_pool_grad(call.features, call.rois, argmax, dy, **call.attrs)
        with pytest.raises(tf.errors.InvalidArgumentError, match="expected"):
            kernels.pullback_roi_pool_take(call.features, call.rois, argmax, **call.attrs)
        return
    dx, y = np.zeros_like(call.features), np.zeros_like(dy)
    for r, i, j, c in np.argwhere(argmax >= 0):
        at = int(call.rois[r, 0]), *divmod(int(argmax[r, i, j, c]), width), c
        dx[at] += dy[r, i, j, c]
        y[r, i, j, c] = call.features[at]
    scattered = kernels.pullback_roi_pool_grad(call.features, call.rois, argmax, dy, **call.attrs)
    np.testing.assert_array_equal(scattered, dx)
    np.testing.assert_array_equal(kernels.pullback_roi_pool_take(call.features, call.rois, argmax, **call.attrs), y)


def test_the_linear_kernels_are_each_others_gradients_at_every_order() -> None:
    rng = np.random.default_rng(0)
    rois, attrs = np.array([[0, 0, 0, 3, 3], [0, 1, 1, 2, 2]], float), {"pooled_height": 2, "pooled_width": 2}
    x, dy, ddx = (rng.normal(size=shape) for shape in ((1, 4, 4, 3), (2, 2, 2, 3), (1, 4, 4, 3)))
    _, argmax = kernels.pullback_roi_pool(x, rois, **attrs)
    scattered = kernels.pullback_roi_pool_grad(x, rois, argmax, dy, **attrs)
    taken = kernels.pullback_roi_pool_take(ddx, rois, argmax, **attrs)
    weights, dys = tf.constant(ddx), tf.constant(dy)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([weights, dys])
        take = kernels.pullback_roi_pool_take(weights, rois, argmax, **attrs)
        scatter = kernels.pullback_roi_pool_grad(x, rois, argmax, dys, **attrs)
    np.testing.assert_array_equal(tape.gradient(take, weights, output_gradients=tf.constant(dy)), scattered)
    np.testing.assert_array_equal(tape.gradient(scatter, dys, output_gradients=tf.constant(ddx)), taken)


FEATURES, ROIS = np.ones((1, 4, 4, 2), np.float32), np.array([[0, 0, 0, 3, 3]], np.float32)
ONE = {"pooled_height": 1, "pooled_width": 1}
MISTAKES = {
    "rank of features": ((FEATURES[0], ROIS, ONE), r"features: expected rank 4, \[N, H, W, C\], got \[4,4,2\]"),
    "rank of rois": ((FEATURES, ROIS[0], ONE), r"rois: expected shape \[R, 5\].*, got \[5\]"),
    "columns of rois": ((FEATURES, ROIS[:, :4], ONE), r"rois: expected shape \[R, 5\].*, got \[1,4\]"),
    "image": ((FEATURES, ROIS + 1, ONE), r"rois: expected the index of one of 1 images at \[0, 0\], got 1"),
    "no size": ((FEATURES, ROIS, ONE | {"pooled_width": 0}), "pooled_width.* 0 .*minimum 1"),
    "not finite": ((FEATURES, ROIS * [1, 1, 1, 1, np.inf], ONE), r"expected a coordinate .* at \[0, 4\], got inf"),
}


@pytest.mark.parametrize(("arguments", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_reported_with_expected_and_got(arguments, message) -> None:
    features, rois, attrs = arguments
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        kernels.pullback_roi_pool(features, rois.astype(np.float32), **attrs)


@pytest.mark.parametrize("kernel", [kernels.pullback_roi_pool_grad, kernels.pullback_roi_pool_take])
def test_an_argmax_of_another_shape_is_refused(kernel) -> None:
    argmax, dy = np.zeros((1, 1, 1, 3), np.int32), np.zeros((1, 1, 1, 2), np.float32)
    rest = (argmax, dy) if kernel.__name__ == "pullback_roi_pool_grad" else (argmax,)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"argmax: expected shape \[1,1,1,2\], got \[1,1,1,3\]"):
        kernel(FEATURES, ROIS, *rest, **ONE)


def test_static_shapes_are_inferred() -> None:
    shapes = []

    def pool(features, rois):
        pooled, argmax = kernels.pullback_roi_pool(features, rois, pooled_height=2, pooled_width=3)
        dx = kernels.pullback_roi_pool_grad(features, rois, argmax, pooled, pooled_height=2, pooled_width=3)
        taken = kernels.pullback_roi_pool_take(dx, rois, argmax, pooled_height=2, pooled_width=3)
        shapes.extend(x.shape.as_list() for x in (pooled, argmax, dx, taken))
        return pooled

    specs = [tf.TensorSpec([None, 5, None, 8], tf.float32), tf.TensorSpec([None, None], tf.float32)]
    tf.function(pool, input_signature=specs, autograph=False).get_concrete_function()
    assert shapes == [[None, 2, 3, 8], [None, 2, 3, 8], [None, 5, None, 8], [None, 2, 3, 8]]
    wrong = [specs[0], tf.TensorSpec([None, 4], tf.float32)]
    with pytest.raises(ValueError, match="must be 5 but is 4"):
        tf.function(pool, input_signature=wrong, autograph=False).get_concrete_function()


def test_the_order_of_the_additions_does_not_depend_on_threads() -> None:
    """One thread sums each number of dx in the order of the rois, so the bits are always the same."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(1, 16, 16, 64)).astype(np.float32)
    rois = np.concatenate([np.zeros((200, 1)), rng.integers(0, 8, (200, 2)), rng.integers(8, 16, (200, 2))], axis=1)
    pooled, argmax = kernels.pullback_roi_pool(features, rois.astype(np.float32), pooled_height=3, pooled_width=3)
    dy = rng.normal(size=pooled.shape).astype(np.float32)
    expected = np.zeros_like(features)
    cells, channels = argmax.numpy(), np.arange(64)
    np.add.at(expected, (0, cells // 16, cells % 16, channels), dy)
    for _ in range(5):
        dx = kernels.pullback_roi_pool_grad(
            features, rois.astype(np.float32), argmax, dy, pooled_height=3, pooled_width=3
        )
        np.testing.assert_array_equal(dx, expected)
