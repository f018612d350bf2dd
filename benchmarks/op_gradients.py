"""The first-order gradient of every op, by hand in NumPy: what a user of UM-Bridge would write.

Arguments are those of an op's ``vjp``: the inputs, then a cotangent for each differentiable output, then attributes.
The result is the gradient, or a tuple with one for each differentiable input. Nothing here needs TensorFlow, so the
other server has only NumPy to load; ``tests/benchmarks`` compares the results with those of the service.
"""

from itertools import product
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Shape: TypeAlias = tuple[int, ...]

# Magnitudes of an eigenvector's components that differ by less than this are equal.
TIE = 2.0**-16


def square(x: Array, dy: Array) -> Array:
    """dx = 2x dy."""
    return 2 * x * dy


def log1pexp(x: Array, dy: Array) -> Array:
    """dx = dy σ(x)."""
    return dy / (1 + np.exp(-x))


def passed_between(x: Array, dy: Array) -> Array:
    """dx = dy where -1 <= x <= 1, else 0: the straight-through gradient of a sign."""
    return np.where(np.abs(x) <= 1, dy, 0)


def passed(x: Array, dy: Array) -> Array:
    """dx = dy."""
    del x
    return dy


def reversed_gradient(x: Array, dy: Array) -> Array:
    """dx = -dy."""
    del x
    return -dy


def scaled(x: Array, dy: Array, *, scale: float) -> Array:
    """dx = s dy."""
    del x
    return scale * dy


def clipped(x: Array, dy: Array) -> Array:
    """dx = dy cut to [-0.5, 0.5]."""
    del x
    return np.clip(dy, -0.5, 0.5)


def rectified(x: Array, dy: Array) -> Array:
    """dx = dy where x > 0, else 0."""
    return np.where(x > 0, dy, 0)


def first_only(x: Array, dy: Array) -> Array:
    """dx = dy₀ e₀."""
    dx = np.zeros_like(x)
    dx.flat[0] = dy.flat[0]
    return dx


def safe_norm(x: Array, dy: Array) -> Array:
    """dx = dy x / |x|, and 0 at 0."""
    length = np.linalg.norm(x, axis=-1, keepdims=True)
    return dy[..., None] * x / np.where(length > 0, length, 1)


def softmax_cross_entropy(logits: Array, labels: Array, dy: Array) -> Array:
    """dx = (softmax(x) - onehot(label)) dy."""
    p = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    p[np.arange(len(p)), labels] -= 1
    return p * dy[:, None]


def self_adjoint_eig(a: Array, dw: Array, dv: Array) -> Array:
    """dA = V (diag(dw) + F∘anti(VᵀdV)) Vᵀ, with F[i,j] = 1/(w[j] - w[i])."""
    w, v = eigenpairs(a)
    p = np.swapaxes(v, -1, -2) @ dv
    diagonal = np.eye(w.shape[-1], dtype=w.dtype)
    gaps = w[..., None, :] - w[..., :, None] + diagonal
    k = (p - np.swapaxes(p, -1, -2)) / 2 / gaps + dw[..., None] * diagonal
    return v @ k @ np.swapaxes(v, -1, -2)


def eigenpairs(a: Array) -> tuple[Array, Array]:
    """Return w and V of (A + Aᵀ)/2; the first largest component of each column is positive."""
    w, v = np.linalg.eigh((a + np.swapaxes(a, -1, -2)) / 2)
    size = np.abs(v)
    first = np.argmax(size >= (1 - TIE) * size.max(axis=-2, keepdims=True), axis=-2, keepdims=True)
    return w, v * np.sign(np.take_along_axis(v, first, axis=-2))


def conv_eig(x: Array, f: Array, dw: Array) -> tuple[Array, Array]:
    """dR = (2/n) Z V diag(dw) Vᵀ, pulled back through the convolution by a loop over the filter's taps."""
    height, width, channels = x.shape[1] - f.shape[0] + 1, x.shape[2] - f.shape[1] + 1, f.shape[3]
    n = height * width
    patches = {(i, j): (slice(None), slice(i, i + height), slice(j, j + width)) for i, j in np.ndindex(*f.shape[:2])}
    r = np.zeros((len(x), height, width, channels), x.dtype)
    for at, patch in patches.items():
        r += x[patch] @ f[at]
    z = r.reshape(len(x), n, channels)
    z = z - z.mean(axis=1, keepdims=True)
    _, v = np.linalg.eigh(np.swapaxes(z, 1, 2) @ z / n)
    dr = (2 / n * z @ (v * dw[:, None, :]) @ np.swapaxes(v, 1, 2)).reshape(r.shape)
    dx, df = np.zeros_like(x), np.zeros_like(f)
    for at, patch in patches.items():
        dx[patch] += dr @ f[at].T
        df[at] = np.tensordot(x[patch], dr, axes=([0, 1, 2], [0, 1, 2]))
    return dx, df


def roi_pool(features: Array, rois: Array, dy: Array, *, pooled_height: int, pooled_width: int) -> Array:
    """dx = dy summed at the maxima of the bins, for coordinates in cells."""
    dx = np.zeros_like(features)
    height, width, channels = features.shape[1:]
    corners = np.trunc(rois[:, 1:] + np.copysign(0.5, rois[:, 1:])).astype(int)
    for r, (x1, y1, x2, y2) in enumerate(corners.tolist()):
        rows, columns = bins(y1, y2, pooled_height, height), bins(x1, x2, pooled_width, width)
        for (i, here_rows), (j, here_columns) in product(enumerate(rows), enumerate(columns)):
            here = int(rois[r, 0]), here_rows, here_columns
            if (cells := features[here].reshape(-1, channels)).size:
                into = dx[here]
                row, column = np.divmod(cells.argmax(axis=0), into.shape[1])
                into[row, column, np.arange(channels)] += dy[r, i, j]
    return dx


def bins(start: int, end: int, count: int, size: int) -> list[slice]:
    """Return the cells of each bin of a region along an axis of an image."""
    length = max(end - start + 1, 1)
    edges = [(start + i * length // count, start - (-(i + 1) * length // count)) for i in range(count)]
    return [slice(min(max(a, 0), size), min(max(b, 0), size)) for a, b in edges]
