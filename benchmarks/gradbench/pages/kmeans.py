r"""The cost of clusters, the sum of squared distances to the closest centroid: the eval ``kmeans`` of GradBench.

y = Σᵢ minⱼ |cⱼ - pᵢ|²; dy/dcⱼ = 2 Σ (cⱼ - pᵢ) over the points pᵢ that are closest to cⱼ, and dy/dpᵢ = 2 (pᵢ - cⱼ); the
Hessian in the centroids is diagonal, twice the number of points of each. Where a point is as close to another centroid
the minimum has a kink, and the gradient is shared.

Source: Bottou and Bengio, "Convergence Properties of the K-Means Algorithms" (1994). The gradient is TensorFlow's own.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from ops import Array, Example, Input, Op, Output, Tensor

DTYPES = ("float64", "float32")


def forward(points: Tensor, centroids: Tensor) -> Tensor:
    """y = Σ min (|c|² - 2 c·p) + |p|²."""
    squares = tf.reduce_sum(tf.square(centroids), 1) - 2 * tf.matmul(points, centroids, transpose_b=True)
    return tf.reduce_sum(tf.reduce_min(squares, 1)) + tf.reduce_sum(tf.square(points))


def reference(points: Array, centroids: Array) -> Array:
    """y = Σ min |c - p|², in NumPy."""
    apart = np.asarray(points, np.float64)[:, None] - np.asarray(centroids, np.float64)
    return (apart**2).sum(2).min(1).sum()


def cost(dims: Mapping[str, Any]) -> int:
    """Return the multiply-adds: N K D."""
    return dims["N"] * dims["K"] * dims["D"]


OP = Op(
    name="kmeans",
    summary="the sum of squared distances of points to the closest centroid",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(Input("points", shape=("N", "D"), dtypes=DTYPES), Input("centroids", shape=("K", "D"), dtypes=DTYPES)),
    outputs=(Output("y", shape=(), dtypes=DTYPES),),
    cost=cost,
    source="https://github.com/gradbench/gradbench/tree/main/evals/kmeans",
    examples=(
        Example(
            "two clusters",
            {"points": [[0.0, 0.5], [1.0, 0.25], [4.0, 5.0], [5.5, 4.0]], "centroids": [[0.25, 0.5], [5.0, 5.0]]},
        ),
    ),
)
