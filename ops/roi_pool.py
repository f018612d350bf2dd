"""Max pooling over regions of interest (Fast R-CNN), in C++: forward, gradient, and the gradient's own gradient.

Each row (n, x1, y1, x2, y2) of rois is a rectangle on image n of the features, cut into pooled_height by pooled_width
bins; pooled holds the maximum of each bin, channel by channel, and argmax its cell. Exactly:

- corners are multiplied by spatial_scale and rounded to the nearest cell, halves away from zero;
- both ends belong to the region: it spans h = max(y2 - y1 + 1, 1) rows and, likewise, w columns; so a region that
  ends before its start is one cell;
- bin i of rows begins at row y1 + ⌊i h / pooled_height⌋ and ends before y1 + ⌈(i + 1) h / pooled_height⌉, in integers;
  neighbouring bins may share a row. Columns likewise. Bins are then cut off at the edges of the image;
- y = the largest number of a bin; of equal ones the first, row by row; a NaN counts as the largest. argmax is its
  cell, row·W + column. An empty bin has y = 0 and argmax = -1.

With e the unit vectors of features: dy/dx = Σ e[argmax], bin by bin, so dx sums dy at the cells of the maxima; d²y/dx²
= 0. Where two numbers of a bin are equal the maximum has a kink: the gradient is that of the first. Rois have no
gradient: y is piecewise constant in them. The image must exist, coordinates be finite and within 2³⁰ cells.

Source: Girshick, "Fast R-CNN" (ICCV 2015), section 2.1, and its published code; the bins use exact integers here.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from pydantic import Field

from ops import UNCOMPILED, Array, Attrs, Example, Input, InvalidInput, Op, Output, Tensor, load, register_gradient

kernels = load(__file__, bounded=("PullbackRoiPool", "PullbackRoiPoolGrad", "PullbackRoiPoolTake"))
DTYPES = ("float32", "float64")
FARTHEST = 2.0**30


class RoiPoolAttrs(Attrs):
    """The number of bins, and the cells of the features in one unit of the rois."""

    pooled_height: int = Field(default=7, ge=1, le=64)
    pooled_width: int = Field(default=7, ge=1, le=64)
    spatial_scale: float = Field(default=1.0, gt=0)


def forward(
    features: Tensor, rois: Tensor, *, pooled_height: int, pooled_width: int, spatial_scale: Tensor
) -> tuple[Tensor, Tensor]:
    """Pooled and argmax. The scale is applied here, as an attribute of the C++ op needs a trace for each value."""
    one = tf.ones_like(spatial_scale)
    scaled = rois * tf.stack([one, *[spatial_scale] * 4])
    pooled, argmax = kernels.pullback_roi_pool(features, scaled, pooled_height=pooled_height, pooled_width=pooled_width)
    return pooled, argmax


@register_gradient("PullbackRoiPool")
def vjp(op: tf.Operation, dy: Tensor, _: Tensor | None) -> tuple[Tensor, None]:
    """dx = dy summed in the cells of the maxima; rois have none, and the cotangent of argmax is dropped."""
    features, rois = op.inputs
    return kernels.pullback_roi_pool_grad(features, rois, op.outputs[1], dy, **_attrs(op)), None


@register_gradient("PullbackRoiPoolGrad")
def grad_vjp(op: tf.Operation, ddx: Tensor) -> tuple[None, None, None, Tensor]:
    """Return, for dy, ddx at the cells of the maxima; dx does not depend on the values of the features."""
    _, rois, argmax, _ = op.inputs
    return None, None, None, kernels.pullback_roi_pool_take(ddx, rois, argmax, **_attrs(op))


@register_gradient("PullbackRoiPoolTake")
def take_vjp(op: tf.Operation, dy: Tensor) -> tuple[Tensor, None, None]:
    """dx = dy summed in the same cells: this op and the gradient above are each other's adjoints."""
    x, rois, argmax = op.inputs
    return kernels.pullback_roi_pool_grad(x, rois, argmax, dy, **_attrs(op)), None, None


def _attrs(op: tf.Operation) -> dict[str, Any]:
    return {name: op.get_attr(name) for name in ("pooled_height", "pooled_width", "spatial_scale")}


def reference(
    features: Array, rois: Array, *, pooled_height: int, pooled_width: int, spatial_scale: float
) -> tuple[Array, Array]:
    """Pooled and argmax, by plain loops over regions, bins and channels."""
    _, height, width, channels = features.shape
    pooled = np.zeros((len(rois), pooled_height, pooled_width, channels), features.dtype)
    argmax = np.full(pooled.shape, -1, np.int32)
    for r, i, j, c in np.ndindex(pooled.shape):
        x1, y1, x2, y2 = (_nearest(corner * spatial_scale) for corner in rois[r, 1:].tolist())
        rows = range(*_bin(i, pooled_height, y1, max(y2 - y1 + 1, 1), height))
        columns = range(*_bin(j, pooled_width, x1, max(x2 - x1 + 1, 1), width))
        cells = [(row, column) for row in rows for column in columns]
        if cells:
            values = [features[int(rois[r, 0]), row, column, c] for row, column in cells]
            first = int(np.argmax(values))
            pooled[r, i, j, c], argmax[r, i, j, c] = values[first], cells[first][0] * width + cells[first][1]
    return pooled, argmax


def _nearest(x: float) -> int:
    """Round halves away from zero, as C does and Python does not."""
    return int(math.copysign(math.floor(abs(x) + 0.5), x))


def _bin(i: int, bins: int, start: int, length: int, size: int) -> tuple[int, int]:
    ends = start + math.floor(i * length / bins), start + math.ceil((i + 1) * length / bins)
    return min(max(ends[0], 0), size), min(max(ends[1], 0), size)


def cost(dims: Mapping[str, Any]) -> int:
    """Every region may span the whole image, and each bin is at least a cell."""
    bins = dims["pooled_height"] * dims["pooled_width"]
    return dims["R"] * dims["C"] * (4 * dims["H"] * dims["W"] + bins)


def validate(inputs: Mapping[str, Array], attrs: RoiPoolAttrs) -> None:
    """Refuse an image that does not exist, and a corner that is not finite or too far away."""
    rois, images = inputs["rois"], len(inputs["features"])
    image, corners = rois[:, 0], rois[:, 1:]
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = corners * corners.dtype.type(attrs.spatial_scale)
        lost = np.argwhere(~((image >= 0) & (image < images) & (image == np.floor(image))))
        far = np.argwhere(~(np.abs(scaled) <= FARTHEST))
    if len(lost):
        row = int(lost[0, 0])
        expected = f"the index of one of {images} images"
        raise InvalidInput("rois", "unknown image", expected=expected, got=str(image[row]), index=(row, 0))
    if len(far):
        row, column = int(far[0, 0]), int(far[0, 1])
        expected = "a finite number, within 2^30 cells"
        got = str(corners[row, column])
        raise InvalidInput("rois", "invalid coordinate", expected=expected, got=got, index=(row, column + 1))


def sample(rng: np.random.Generator, dtype: str, attrs: RoiPoolAttrs) -> dict[str, Array]:
    """Draw distinct features, so that no step changes a maximum, and rois within and across the edges."""
    shape = 2, 5, 6, 2
    features = rng.permutation(math.prod(shape)).reshape(shape) / 2 - 20
    corners = rng.integers(-2, 8, (4, 2, 2))
    rois = np.concatenate([rng.integers(0, 2, (4, 1)), np.sort(corners, axis=1).reshape(4, 4)], axis=1)
    rois[:, 1:] = np.round(rois[:, 1:] / attrs.spatial_scale)
    return {"features": features.astype(dtype), "rois": rois.astype(dtype)}


OP = Op(
    name="roi_pool",
    summary="max pooling over regions of interest: forward, gradient and its gradient are C++ kernels",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(
        Input("features", dtypes=DTYPES, shape=("N", "H", "W", "C"), doc="Feature maps."),
        Input(
            "rois",
            dtypes=DTYPES,
            shape=("R", 5),
            differentiable=False,
            doc="Rows (image, x1, y1, x2, y2), both corners inclusive.",
        ),
    ),
    outputs=(
        Output("pooled", dtypes=DTYPES, shape=("R", "pooled_height", "pooled_width", "C"), doc="Maxima of the bins."),
        Output(
            "argmax",
            dtypes=("int32",),
            shape=("R", "pooled_height", "pooled_width", "C"),
            differentiable=False,
            doc="The cell of each maximum, row * W + column; -1 for an empty bin.",
        ),
    ),
    source="https://arxiv.org/abs/1504.08083",
    attrs=RoiPoolAttrs,
    modes=UNCOMPILED,
    batching="leading_axis",
    shared=("features",),
    cost=cost,
    validate=validate,
    sample=sample,
    examples=(
        Example(
            "two_regions",
            {
                "features": [[[[3], [1], [4]], [[15], [9], [2]], [[6], [5], [35]]]],
                "rois": [[0, 0, 0, 2, 2], [0, 1, 1, 2, 1]],
            },
            {"pooled_height": 2, "pooled_width": 2},
        ),
        Example(
            "over_the_edge",
            {
                "features": [[[[1, -8], [2, -7]], [[3, -6], [4, -5]]], [[[5, -4], [6, -3]], [[7, -2], [8, -1]]]],
                "rois": [[1, 0, 0, 7, 3], [0, -9, -9, -5, -5], [0, 2, 2, 0, 0]],
            },
            {"pooled_height": 1, "pooled_width": 2, "spatial_scale": 0.25},
        ),
    ),
)
