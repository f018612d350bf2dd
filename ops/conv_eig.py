r"""Eigenvalues of the channel covariance of a convolution: a whole subgraph with a single custom gradient.

R = x * f (2-D convolution, stride 1, no padding) has n = (H - K + 1)(W - L + 1) positions of D channels in each image;
Z, n by D, is R less its mean over the positions; S = ZᵀZ/n is the covariance, S = V diag(w) Vᵀ, and w ascends.

- first order: dR = (2/n) Z M with M = V diag(dw) Vᵀ; dx and df are the convolution's pullback of dR;
- second order, with T = ddx * f + x * ddf, U = T less its mean, C = Vᵀ(ZᵀU + UᵀZ)V/n, d[i,j] = w[j] - w[i],
  F = d/(d² + β²), E[i,j] = dw[j] - dw[i] and N = V (F∘C∘E) Vᵀ: diag(C) for dw; for x and f the convolution's
  pullbacks of (2/n)(U M + Z N) at (x, f) and of dR at (ddx, ddf).

The first order needs no 1/d and is finite everywhere. Where eigenvalues meet they have a kink, and the gradient is that
of one eigenbasis; a cotangent that treats them alike, as the trace does, meets no kink. Eigenvalues that are 0 by
construction (D >= n, or D > KLC) have the gradient 0.

The second order has a pole where eigenvalues meet: NaN, but 0 when multiplied by an exact zero; where they are equal
up to rounding, like several zeros by construction, it is finite and meaningless. The attribute ``broadening`` is
β, in the unit of the covariance: 0, the default, is the exact derivative; β > 0 is finite everywhere, and the second
order then claims a formula: the vjp is differentiated with the broadened tangent of V, V (F∘C), as in
``self_adjoint_eig``.

Each pullback repeats the convolution and the decomposition: it gets x and f, not R and V.

Source: https://stackoverflow.com/questions/36456436 ("How can I define only the gradient for a Tensorflow subgraph?", a
convolution and an eigenvalue decomposition); the formulas are built on those of ``self_adjoint_eig``.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from pydantic import Field

from ops import Array, Arrays, Attrs, Claim, Example, Formula, Input, InvalidInput, Op, Output, Tensor, custom_gradient
from ops.self_adjoint_eig import OP as EIG
from ops.self_adjoint_eig import forward as eigenpairs
from ops.self_adjoint_eig import lorentzian, meet, refuse_tiny_broadening


class ConvEigAttrs(Attrs):
    """The broadening β of 1/(w[j] - w[i]) at second order, in the unit of the covariance; 0 is the exact derivative."""

    broadening: float = Field(default=0.0, ge=0)


def forward(x: Tensor, f: Tensor, *, broadening: Tensor) -> Tensor:
    """w of the covariance of x * f; the broadening is only in the second order."""
    z = _centred(_convolved(x, f))
    w, _ = eigenpairs(_covariance(z, z), broadening=broadening)
    return w


def vjp(x: Tensor, f: Tensor, dw: Tensor, *, broadening: Tensor) -> tuple[Tensor, Tensor]:
    """Return the convolution's pullback of dR = (2/n) Z V diag(dw) Vᵀ."""
    z = _centred(_convolved(x, f))
    _, v = eigenpairs(_covariance(z, z), broadening=broadening)
    return _pulled_back(x, f, 2 / _positions(z) * tf.matmul(z, _weighted(v, dw)))


def vjp_vjp(
    x: Tensor, f: Tensor, dw: Tensor, ddx: Tensor, ddf: Tensor, *, broadening: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the convolution's pullbacks of (2/n)(U M + Z N) at (x, f) and of dR at (ddx, ddf); diag(C) for dw."""
    z = _centred(_convolved(x, f))
    u = _centred(_convolved(ddx, f) + _convolved(x, ddf))
    w, v = EIG.function(_covariance(z, z), broadening=broadening)
    c = tf.matmul(v, tf.matmul(_covariance(z, u) + _covariance(u, z), v), transpose_a=True)
    e = dw[:, tf.newaxis, :] - dw[:, :, tf.newaxis]
    turned = tf.math.multiply_no_nan(lorentzian(w, broadening)[0], c * e)
    m, n = _weighted(v, dw), tf.matmul(v, tf.matmul(turned, v, transpose_b=True))
    scale = 2 / _positions(z)
    x_slot, f_slot = _pulled_back(x, f, scale * (tf.matmul(u, m) + tf.matmul(z, n)))
    through_ddf, through_ddx = _pulled_back(ddx, ddf, scale * tf.matmul(z, m))
    return x_slot + through_ddf, f_slot + through_ddx, tf.linalg.diag_part(c)


def _convolved(x: Tensor, f: Tensor) -> Tensor:
    """x * f, its positions on one axis: (N, n, D)."""
    r = tf.nn.conv2d(x, f, strides=1, padding="VALID")
    images, height, width, channels = tf.unstack(tf.shape(r), num=4)
    return tf.reshape(r, [images, height * width, channels])


def _pulled_back(x: Tensor, f: Tensor, dr: Tensor) -> tuple[Tensor, Tensor]:
    """Dx and df of the convolution, from dr of shape (N, n, D)."""
    xs, fs = tf.shape(x), tf.shape(f)
    dr = tf.reshape(dr, [xs[0], xs[1] - fs[0] + 1, xs[2] - fs[1] + 1, fs[3]])
    unit = [1, 1, 1, 1]
    dx = tf.raw_ops.Conv2DBackpropInput(input_sizes=xs, filter=f, out_backprop=dr, strides=unit, padding="VALID")
    df = tf.raw_ops.Conv2DBackpropFilter(input=x, filter_sizes=fs, out_backprop=dr, strides=unit, padding="VALID")
    return dx, df


def _centred(r: Tensor) -> Tensor:
    return r - tf.reduce_mean(r, axis=1, keepdims=True)


def _covariance(z: Tensor, u: Tensor) -> Tensor:
    return tf.matmul(z, u, transpose_a=True) / _positions(z)


def _positions(z: Tensor) -> Tensor:
    return tf.cast(tf.shape(z)[1], z.dtype)


def _weighted(v: Tensor, dw: Tensor) -> Tensor:
    """M = V diag(dw) Vᵀ."""
    return tf.matmul(v * dw[:, tf.newaxis, :], v, transpose_b=True)


def reference(x: Array, f: Array, *, broadening: float) -> Array:
    """w by LAPACK of NumPy's covariance, image by image."""
    del broadening
    r = _responses(x, f)
    n = r.shape[1] * r.shape[2]
    covariances = [np.cov(image.reshape(n, f.shape[3]), rowvar=False, bias=True) for image in r]
    return np.array([np.linalg.eigvalsh(np.atleast_2d(s)) for s in covariances]).reshape(len(x), f.shape[3])


def _responses(x: Array, f: Array) -> Array:
    """R by a loop over the filter's taps: (N, H - K + 1, W - L + 1, D)."""
    height, width = x.shape[1] - f.shape[0] + 1, x.shape[2] - f.shape[1] + 1
    r = np.zeros((len(x), height, width, f.shape[3]), np.result_type(x, f))
    for i, j in np.ndindex(f.shape[:2]):
        r += x[:, i : i + height, j : j + width] @ f[i, j]
    return r


def claim(attrs: ConvEigAttrs) -> Claim:
    """Claim the derivative at first order and, with broadening, a formula at second order."""
    if attrs.broadening == 0:
        return Claim()
    return Claim(second=Formula(partial(broadened_vjp_vjp, broadening=attrs.broadening)))


def broadened_vjp_vjp(primals: Arrays, cotangents: Arrays, ddx: Arrays, *, broadening: float) -> Arrays:
    """The derivative of the vjp along (ddx, ddf) by a complex step, V moving by V (F∘C): it is its own adjoint."""
    (x, f), (tangent_x, tangent_f), step = primals, ddx, 1e-30
    z = _flat(_responses(x, f))
    u = _flat(_responses(tangent_x, f) + _responses(x, tangent_f))
    w, v = np.linalg.eigh(np.swapaxes(z, 1, 2) @ z / z.shape[1])
    c = np.swapaxes(z @ v, 1, 2) @ (u @ v) / z.shape[1]
    d = w[:, None, :] - w[:, :, None]
    tv = v @ ((c + np.swapaxes(c, 1, 2)) * d / (d**2 + broadening**2))
    moved = _vjp(x + 1j * step * tangent_x, f + 1j * step * tangent_f, v + 1j * step * tv, cotangents[0])
    return [np.imag(slot) / step for slot in moved]


def _flat(r: Array) -> Array:
    """R less its mean: (N, n, D)."""
    r = r.reshape(len(r), r.shape[1] * r.shape[2], r.shape[3])
    return r - r.mean(axis=1, keepdims=True)


def _vjp(x: Array, f: Array, v: Array, dw: Array) -> tuple[Array, Array]:
    """Dx and df, given the eigenvectors, by a loop over the filter's taps."""
    r = _responses(x, f)
    height, width = r.shape[1:3]
    dr = (2 / (height * width) * _flat(r) @ (v * dw[:, None, :]) @ np.swapaxes(v, 1, 2)).reshape(r.shape)
    dx, df = np.zeros_like(x), np.zeros_like(f)
    for i, j in np.ndindex(f.shape[:2]):
        patch = (slice(None), slice(i, i + height), slice(j, j + width))
        dx[patch] += dr @ f[i, j].T
        df[i, j] = np.einsum("nhwc,nhwd->cd", x[patch], dr)
    return dx, df


def cost(dims: Mapping[str, Any]) -> int:
    """The convolution, the covariance and ten D³, image by image."""
    positions = dims["H"] * dims["W"]
    taps = dims["K"] * dims["L"] * dims["C"]
    return dims["N"] * (positions * dims["D"] * (taps + dims["D"]) + 10 * dims["D"] ** 3)


def validate(inputs: Mapping[str, Array], attrs: ConvEigAttrs) -> None:
    """Refuse a filter that does not fit, no channels (XLA crashes), and numbers that are not finite (XLA errs)."""
    refuse_tiny_broadening(attrs.broadening, inputs["x"].dtype)
    for name, array in inputs.items():
        if not np.isfinite(array).all():
            index = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
            got = str(array[index])
            message = f"the decomposition needs finite numbers, got {got} at {list(index)}"
            raise InvalidInput(name, message, expected="finite numbers", got=got, index=index)
    (height, width, channels), (rows, columns) = inputs["x"].shape[1:], inputs["f"].shape[:2]
    if channels < 1:
        message = "the feature map has no channels, with which XLA's convolution crashes the process"
        raise InvalidInput("x", message, expected="C of at least 1", got="C = 0")
    if inputs["f"].shape[3] < 1:
        message = "the filter has no output channels, which TensorFlow's convolution refuses in all modes but XLA"
        raise InvalidInput("f", message, expected="D of at least 1", got="D = 0")
    if not (1 <= rows <= height and 1 <= columns <= width):
        expected = f"K in 1..{height} and L in 1..{width}, the H and W of x"
        got = f"K = {rows} and L = {columns}"
        raise InvalidInput("f", f"the filter must fit in the feature map: {got}", expected=expected, got=got)


def singular(inputs: Mapping[str, Array], attrs: ConvEigAttrs) -> bool:
    """Report whether two eigenvalues of an image are equal in float32, without broadening."""
    x, f = (np.asarray(inputs[name], np.float64) for name in ("x", "f"))
    return attrs.broadening == 0 and meet(reference(x, f, broadening=0.0))


def sample(rng: np.random.Generator, dtype: str, attrs: ConvEigAttrs) -> dict[str, Array]:
    """Draw small feature maps and filters whose eigenvalues are apart by a tenth of the largest or more."""
    del attrs
    images, rows, columns, channels = (int(i) for i in rng.integers(1, 4, size=4))
    outputs = min(int(rng.integers(1, 4)), rows * columns * channels)
    while True:
        x = rng.normal(size=(images, rows + 2, columns + 3, channels))
        f = rng.normal(size=(rows, columns, channels, outputs))
        w = reference(x, f, broadening=0.0)
        if outputs == 1 or (np.diff(w) > 0.1 * w[:, -1:]).all():
            return {"x": x.astype(dtype), "f": f.astype(dtype)}


OP = Op(
    name="conv_eig",
    summary="Eigenvalues of the channel covariance of a convolution, with one gradient for the whole subgraph",
    doc=__doc__,
    function=custom_gradient(forward, vjp, vjp_vjp),
    reference=reference,
    inputs=(
        Input("x", dtypes=("float32", "float64"), shape=("N", "H", "W", "C"), doc="Feature map."),
        Input("f", dtypes=("float32", "float64"), shape=("K", "L", "C", "D"), doc="Filters; K <= H, L <= W."),
    ),
    outputs=(Output("w", dtypes=("float32", "float64"), shape=("N", "D"), doc="Eigenvalues, ascending."),),
    source="https://stackoverflow.com/questions/36456436",
    attrs=ConvEigAttrs,
    claim=claim,
    batching="leading_axis",
    shared=("f",),
    cost=cost,
    validate=validate,
    sample=sample,
    singular=singular,
    examples=(
        Example(
            "edges",
            {
                "x": [[[[1.0], [2.0], [0.0], [1.0]], [[0.0], [1.0], [3.0], [1.0]], [[2.0], [0.0], [1.0], [-1.0]]]],
                "f": [[[[1.0, 1.0]], [[-1.0, 1.0]]], [[[1.0, -1.0]], [[-1.0, -1.0]]]],
            },
        ),
        Example(
            "two_channels",
            {
                "x": [[[[1.0, 0.0], [2.0, 1.0], [-1.0, 3.0]], [[0.5, -2.0], [1.0, 1.5], [0.0, -1.0]]]],
                "f": [[[[1.0, 0.5], [-0.5, 2.0]]]],
            },
            {"broadening": 0.01},
        ),
    ),
)
