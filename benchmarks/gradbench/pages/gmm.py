r"""The log posterior of a mixture of Gaussians: the eval ``gmm`` of GradBench.

y = Σᵢ log Σₖ exp(αₖ + Σ qₖ - ½ |Qₖ (xᵢ - μₖ)|²) - N log Σₖ exp(αₖ) - ½ N D log 2π + the log of a Wishart prior, with
Qₖ the lower triangular factor of the inverse covariance: exp(qₖ) on the diagonal, and below it `lower`, by columns.
The prior has D + m + 1 degrees of freedom and the scale 1/γ²: Σₖ (m Σ qₖ - ½ γ² |Qₖ|²) and a constant. Smooth
everywhere.

Source: Srajer, Kukelova and Fitzgibbon, "A Benchmark of Selected Algorithmic Differentiation Tools on Some Problems in
Computer Vision and Machine Learning" (2018). The gradient is TensorFlow's own.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from pydantic import Field

from ops import Array, Attrs, Example, Input, InvalidInput, Op, Output, Tensor

DTYPES = ("float64", "float32")
MOST = 128


class GmmAttrs(Attrs):
    """The dimension, and the prior."""

    d: int = Field(default=2, ge=1, le=MOST, description="The dimension D of the points.")
    m: int = Field(default=0, ge=0, le=1000, description="Degrees of freedom beside D + 1.")
    gamma: float = Field(default=1.0, gt=0, le=1e3, description="The scale is 1/γ².")


def below(d: int) -> list[tuple[int, int]]:
    """Return the rows and columns below the diagonal, column by column."""
    return [(row, column) for column in range(d) for row in range(column + 1, d)]


def constant(d: int, m: int) -> tuple[float, float]:
    """Return what each point, and each component, adds whatever the inputs and γ."""
    freedom = d + m + 1
    gamma_function = d * (d - 1) / 4 * math.log(math.pi) + sum(math.lgamma((freedom - j) / 2) for j in range(d))
    return -d / 2 * math.log(2 * math.pi), -freedom * d / 2 * math.log(2) - gamma_function


def forward(alpha: Tensor, mu: Tensor, q: Tensor, lower: Tensor, x: Tensor, *, d: int, m: int, gamma: Tensor) -> Tensor:
    """y, the log posterior."""
    k, n = tf.shape(alpha)[0], tf.shape(x)[0]
    factors = tf.linalg.diag(tf.exp(q))
    places = np.array([row * d + column for row, column in below(d)], np.int32).reshape(-1, 1)
    flat = tf.scatter_nd(places, tf.transpose(lower), (d * d, k))
    factors += tf.reshape(tf.transpose(flat), (k, d, d))
    turned = tf.matmul(factors, x - mu[:, None], transpose_b=True)
    exponents = (alpha + tf.reduce_sum(q, 1))[:, None] - tf.reduce_sum(tf.square(turned), 1) / 2
    likelihood = tf.reduce_sum(tf.reduce_logsumexp(exponents, 0) - tf.reduce_logsumexp(alpha))
    prior = m * tf.reduce_sum(q) - gamma**2 / 2 * tf.reduce_sum(tf.square(factors))
    each_point, each_component = constant(d, m)
    scale = d * (d + m + 1) * tf.math.log(gamma) + each_component
    return likelihood + prior + tf.cast(k, x.dtype) * scale + tf.cast(n, x.dtype) * each_point


def reference(alpha: Array, mu: Array, q: Array, lower: Array, x: Array, *, d: int, m: int, gamma: float) -> Array:
    """y, component by component, in NumPy."""
    alpha, mu, q, lower, x = (np.asarray(each, np.float64) for each in (alpha, mu, q, lower, x))
    each_point, each_component = constant(d, m)
    exponents, prior = [], len(alpha) * (each_component + d * (d + m + 1) * np.log(gamma))
    for a, center, diagonal, others in zip(alpha, mu, q, lower, strict=True):
        factor = np.diag(np.exp(diagonal))
        for (row, column), value in zip(below(d), others, strict=True):
            factor[row, column] = value
        exponents.append(a + diagonal.sum() - (((x - center) @ factor.T) ** 2).sum(1) / 2)
        prior += m * diagonal.sum() - gamma**2 / 2 * (factor**2).sum()
    likelihood = (np.logaddexp.reduce(exponents, 0) - np.logaddexp.reduce(alpha)).sum()
    return likelihood + prior + len(x) * each_point


def validate(inputs: Mapping[str, Array], attrs: GmmAttrs) -> None:
    """Refuse points and factors of another size."""
    for name, size in (("mu", attrs.d), ("lower", attrs.d * (attrs.d - 1) // 2)):
        if (got := inputs[name].shape[1]) != size:
            raise InvalidInput(
                name, "the wrong size of a row", expected=f"{size} numbers for d={attrs.d}", got=str(got)
            )


def sample(rng: np.random.Generator, dtype: str, attrs: GmmAttrs) -> dict[str, Array]:
    """Draw three components and five points."""
    d = attrs.d
    shapes = {"alpha": (3,), "mu": (3, d), "q": (3, d), "lower": (3, d * (d - 1) // 2), "x": (5, d)}
    return {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}


def cost(dims: Mapping[str, Any]) -> int:
    """Return the multiply-adds: N K D²."""
    return dims["N"] * dims["K"] * dims["D"] ** 2


OP = Op(
    name="gmm",
    summary="the log posterior of a mixture of Gaussians",
    doc=__doc__,
    function=forward,
    reference=reference,
    inputs=(
        Input("alpha", shape=("K",), dtypes=DTYPES),
        Input("mu", shape=("K", "D"), dtypes=DTYPES),
        Input("q", shape=("K", "D"), dtypes=DTYPES),
        Input("lower", shape=("K", "E"), dtypes=DTYPES),
        Input("x", shape=("N", "D"), dtypes=DTYPES),
    ),
    outputs=(Output("y", shape=(), dtypes=DTYPES),),
    attrs=GmmAttrs,
    validate=validate,
    sample=sample,
    cost=cost,
    source="https://github.com/gradbench/gradbench/tree/main/evals/gmm",
    examples=(
        Example(
            "two components",
            {
                "alpha": [0.25, -0.5],
                "mu": [[0.0, 1.0], [1.5, -0.5]],
                "q": [[0.1, -0.2], [0.3, 0.0]],
                "lower": [[0.5], [-0.25]],
                "x": [[0.5, 1.0], [1.0, -1.0], [0.25, 0.75]],
            },
        ),
    ),
)
