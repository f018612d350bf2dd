r"""Eigenvalues and eigenvectors of a symmetric matrix, with a gradient that may be broadened at repeated eigenvalues.

S = (A + Aᵀ)/2 = V diag(w) Vᵀ, for every matrix of a batch; w ascends, the columns of V are orthonormal. Their signs
differ between solvers, so each column gets the sign that makes its component of largest magnitude positive: the first
such component, where magnitudes within 2⁻¹⁶ of the largest are ties, so that rounding does not decide.

With d[i,j] = w[j] - w[i], elementwise F = d/(d² + β²) and G = β/(d² + β²), both 0 on the diagonal, where β is the
attribute ``broadening``, in the unit of the eigenvalues, and with sym(P) = (P + Pᵀ)/2, anti(P) = (P - Pᵀ)/2:

- first order: dA = V K Vᵀ with K = diag(dw) + F∘anti(P), P = VᵀdV; it is symmetric;
- second order, with C = Vᵀ sym(ddA) V and X = F∘C: diag(C) for dw, V X for dV, and for A the first order once more,
  V (diag(u) + F∘anti(2CK - PX)) Vᵀ with u[j] = 2 Σᵢ ((G² - F²)∘C∘anti(P))[i,j]; G² - F² is dF/dd.

β = 0, the default, is the exact derivative, F = 1/d, as without any broadening. It has a pole at repeated eigenvalues,
because the eigenvectors jump there, and the answer is NaN. A pole times an exact zero is 0, so gradients of eigenvalues
alone, and second derivatives of their symmetric functions such as the trace, stay finite. Eigenvalues that are equal up
to rounding give large finite numbers. TensorFlow's own gradient of eigh is the same except for F = d/(d² + 1e-20), so
it gives 0 at the pole.

β > 0, whose square must be a normal number, is finite everywhere (Liao et al. write ε for β²). F is then smaller than
1/d by the factor d²/(d² + β²), so it is not the derivative of any function and the op claims formulas. The second order
differentiates the vjp with the *broadened* tangents of w and V, diag(C) and V X, the same rule as at first order; the
true ones would bring back a pole, (dw[j] - dw[i])/d. Higher orders continue in the same way.

The signs are piecewise constant and have no gradient. Each pullback repeats the decomposition, since it gets A, not w
and V (16 matrices of order 64: 9 ms for the pairs, 19 ms to order 2).

Source: Liao, Liu, Wang and Xiang, "Differentiable Programming Tensor Networks" (2019), section III, for the broadening;
Giles, "An extended collection of matrix derivative results" (2008), section 3.1, for the exact formula.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf
from pydantic import Field

from ops import Array, Arrays, Attrs, Claim, Example, Formula, Input, InvalidInput, Op, Output, Tensor, custom_gradient
from ops._eigh import conjugated, eigh, sym

TIE = 2.0**-16


class EigAttrs(Attrs):
    """The broadening β of 1/(w[j] - w[i]), in the unit of the eigenvalues; 0 is the exact derivative."""

    broadening: float = Field(default=0.0, ge=0)


def forward(a: Tensor, *, broadening: Tensor) -> tuple[Tensor, Tensor]:
    """w and V of sym(A); the broadening is only in the gradients."""
    # The gradients are formulas. Without stop_gradient, TensorFlow would trace the gradient of the loop in eigh too.
    w, v = eigh(tf.stop_gradient(sym(a)))
    return w, _signed(v)


def vjp(a: Tensor, dw: Tensor, dv: Tensor, *, broadening: Tensor) -> Tensor:
    """dA = V (diag(dw) + F∘anti(VᵀdV)) Vᵀ."""
    w, v = forward(a, broadening=broadening)
    f, _ = lorentzian(w, broadening)
    return conjugated(v, _middle(f, dw, tf.matmul(v, dv, transpose_a=True)))


def vjp_vjp(a: Tensor, dw: Tensor, dv: Tensor, dda: Tensor, *, broadening: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return V (diag(u) + F∘anti(2CK - PX)) Vᵀ for A, diag(C) for dw and V X for dV."""
    w, v = OP.function(a, broadening=broadening)
    f, g = lorentzian(w, broadening)
    p = tf.matmul(v, dv, transpose_a=True)
    c = conjugated(tf.linalg.matrix_transpose(v), sym(dda))
    x = tf.math.multiply_no_nan(f, c)
    u = 2 * tf.reduce_sum(tf.math.multiply_no_nan((g - f) * (g + f), c * _anti(p)), axis=-2)
    y = 2 * tf.matmul(c, _middle(f, dw, p)) - _times_poles(p, x)
    return conjugated(v, _middle(f, u, y)), tf.linalg.diag_part(c), tf.matmul(v, x)


def lorentzian(w: Tensor, broadening: Tensor) -> tuple[Tensor, Tensor]:
    """F and G, d/(d² + β²) and β/(d² + β²): NaN where d = β = 0, and 0 on the diagonal.

    Scaled by s, the larger of d and β, so that squares neither overflow nor underflow; F and G do not depend on s.
    """
    d = w[..., tf.newaxis, :] - w[..., :, tf.newaxis]
    d = tf.linalg.set_diag(d, tf.ones_like(w))
    s = tf.stop_gradient(tf.maximum(tf.abs(d), broadening))
    scaled = s * ((d / s) ** 2 + (broadening / s) ** 2)
    zeros = tf.zeros_like(w)
    return tf.linalg.set_diag(d / s / scaled, zeros), tf.linalg.set_diag(broadening / s / scaled, zeros)


def _middle(f: Tensor, dw: Tensor, p: Tensor) -> Tensor:
    """K = diag(dw) + F∘anti(P), where a pole times 0 is 0."""
    return tf.linalg.set_diag(tf.math.multiply_no_nan(f, _anti(p)), dw)


def _times_poles(p: Tensor, x: Tensor) -> Tensor:
    """P X, where a pole (a NaN in X) times 0 is 0."""
    poles = tf.math.is_nan(x)
    reached = tf.matmul(tf.abs(tf.stop_gradient(p)), tf.cast(poles, p.dtype)) > 0
    finite = tf.matmul(p, tf.where(poles, tf.zeros_like(x), x))
    return tf.where(reached, tf.constant(np.nan, p.dtype), finite)


def _anti(p: Tensor) -> Tensor:
    return (p - tf.linalg.matrix_transpose(p)) / 2


def _signed(v: Tensor) -> Tensor:
    """V with each column flipped such that its first component of largest magnitude is positive."""
    magnitude = tf.abs(v)
    top = tf.cast(magnitude >= (1 - TIE) * tf.reduce_max(magnitude, axis=-2, keepdims=True), v.dtype)
    first = tf.cast(tf.equal(tf.cumsum(top, axis=-2), 1), v.dtype) * top
    return tf.where(tf.reduce_sum(first * v, axis=-2, keepdims=True) < 0, -v, v)


def reference(a: Array, *, broadening: float) -> tuple[Array, Array]:
    """w and V of sym(A), by LAPACK, with the same rule for the sign."""
    del broadening
    w, v = np.linalg.eigh((a + np.swapaxes(a, -1, -2)) / 2)
    magnitude = np.abs(v)
    if v.size == 0:
        return w, v
    first = np.argmax(magnitude >= (1 - TIE) * magnitude.max(axis=-2, keepdims=True), axis=-2, keepdims=True)
    return w, v * np.where(np.take_along_axis(v, first, axis=-2) < 0, -1, 1)


def claim(attrs: EigAttrs) -> Claim:
    """Claim the derivative without broadening, formulas with it."""
    if attrs.broadening == 0:
        return Claim()
    first = partial(broadened_vjp, broadening=attrs.broadening)
    return Claim(first=Formula(first), second=Formula(partial(broadened_vjp_vjp, broadening=attrs.broadening)))


def broadened_vjp(primals: Arrays, cotangents: Arrays, *, broadening: float) -> Arrays:
    """dA[k,l] = ⟨dw, tw⟩ + ⟨dV, tV⟩ with the broadened tangents of w and V along sym(E[k,l])."""
    w, v = reference(primals[0], broadening=broadening)
    return [_to_matrix(_paired(w, v, _units(primals[0]), cotangents, broadening))]


def broadened_vjp_vjp(primals: Arrays, cotangents: Arrays, ddx: Arrays, *, broadening: float) -> Arrays:
    """The A slot: ⟨dw, tw⟩ + ⟨dV, tV⟩ along sym(ddA), differentiated along each sym(E[k,l]) by a complex step."""
    w, v = reference(primals[0], broadening=broadening)
    tw, tv = _tangents(w, v, _units(primals[0]), broadening)
    step = 1e-30
    sym = (ddx[0] + np.swapaxes(ddx[0], -1, -2)) / 2
    moved = _paired(w + 1j * step * tw, v + 1j * step * tv, sym, cotangents, broadening)
    return [_to_matrix(np.imag(moved) / step)]


def _tangents(w: Array, v: Array, ts: Array, broadening: float) -> tuple[Array, Array]:
    """Broadened tangents of w and V along ``ts``, a tangent of S."""
    c = np.swapaxes(v, -1, -2) @ ts @ v
    d = w[..., None, :] - w[..., :, None]
    return np.diagonal(c, axis1=-2, axis2=-1), v @ (c * d / (d**2 + broadening**2))


def _paired(w: Array, v: Array, ts: Array, cotangents: Arrays, broadening: float) -> Array:
    tw, tv = _tangents(w, v, ts, broadening)
    return (cotangents[0] * tw).sum(axis=-1) + (cotangents[1] * tv).sum(axis=(-2, -1))


def _units(a: Array) -> Array:
    """Return sym(E[k,l]) for all k, l, on two axes before those of ``a``."""
    m = a.shape[-1]
    e = np.eye(m * m).reshape(m, m, *(1,) * (a.ndim - 2), m, m)
    return (e + np.swapaxes(e, -1, -2)) / 2


def _to_matrix(values: Array) -> Array:
    return np.moveaxis(values, (0, 1), (-2, -1))


def refuse_tiny_broadening(broadening: float, dtype: np.dtype[Any]) -> None:
    """Refuse a β > 0 whose square is not a normal number: F and G would be NaN."""
    least = float(np.sqrt(np.finfo(dtype).tiny))
    if 0 < broadening < least:
        message = f"its square underflows in {dtype.name}"
        raise InvalidInput("broadening", message, expected=f"0, or at least {least:.3g}", got=str(broadening))


def cost(dims: Mapping[str, Any]) -> int:
    """Ten M³ for each matrix."""
    return 10 * math.prod(dims["..."]) * dims["M"] ** 3


def validate(inputs: Mapping[str, Array], attrs: EigAttrs) -> None:
    """Refuse NaN and infinity, for which LAPACK fails and XLA returns garbage, and a broadening that underflows."""
    refuse_tiny_broadening(attrs.broadening, inputs["a"].dtype)
    if not np.isfinite(inputs["a"]).all():
        index = tuple(int(i) for i in np.argwhere(~np.isfinite(inputs["a"]))[0])
        got = str(inputs["a"][index])
        message = f"the decomposition needs a finite matrix, got {got} at {list(index)}"
        raise InvalidInput("a", message, expected="finite numbers", got=got, index=index)


def singular(inputs: Mapping[str, Array], attrs: EigAttrs) -> bool:
    """Report whether two eigenvalues are equal in float32, without broadening."""
    w, _ = reference(np.asarray(inputs["a"], np.float64), broadening=0.0)
    return attrs.broadening == 0 and meet(w)


def meet(w: Array) -> bool:
    """Report whether neighbours among ascending eigenvalues differ only by rounding, or by too little to square.

    The rounding is that of float32: points of every dtype arrive in float64.
    """
    limits = np.finfo(np.float32)
    gaps, size = np.diff(w), np.abs(w).max(initial=0)
    return bool((gaps <= max(2.0**10 * float(limits.eps) * size, float(limits.tiny) ** 0.5)).any())


def sample(rng: np.random.Generator, dtype: str, attrs: EigAttrs) -> dict[str, Array]:
    """Draw a symmetric matrix, eigenvalues at least 1/2 apart and no eigenvector near a change of its sign."""
    del attrs
    m = int(rng.integers(1, 5))
    while True:
        v, _ = np.linalg.qr(rng.normal(size=(m, m)))
        magnitude = np.sort(np.abs(v), axis=0)
        if m == 1 or (magnitude[-1] - magnitude[-2]).min() > 0.05:  # noqa: PLR2004
            break
    w = np.cumsum(rng.uniform(0.5, 1.5, size=m)) - m / 2
    s = (v * w) @ v.T
    return {"a": ((s + s.T) / 2).astype(dtype)}


OP = Op(
    name="self_adjoint_eig",
    summary="Eigenvalues and eigenvectors of (A + Aᵀ)/2, with a symmetric gradient that may be broadened",
    doc=__doc__,
    function=custom_gradient(forward, vjp, vjp_vjp),
    reference=reference,
    inputs=(Input("a", dtypes=("float32", "float64"), shape=("...", "M", "M"), doc="Only (A + Aᵀ)/2 counts."),),
    outputs=(
        Output("w", dtypes=("float32", "float64"), shape=("...", "M"), doc="Eigenvalues, ascending."),
        Output("v", dtypes=("float32", "float64"), shape=("...", "M", "M"), doc="Eigenvectors, as columns."),
    ),
    source="https://arxiv.org/abs/1903.09650",
    attrs=EigAttrs,
    claim=claim,
    batching="leading_axes",
    cost=cost,
    validate=validate,
    sample=sample,
    singular=singular,
    examples=(
        Example("symmetric", {"a": [[2.0, 1.0, 0.0], [1.0, 3.0, -1.0], [0.0, -1.0, 5.0]]}),
        Example("stack", {"a": [[[1.0, 4.0], [0.0, -2.0]], [[3.0, -1.0], [2.0, 7.0]]]}),
        Example("repeated", {"a": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 2.0]]}, {"broadening": 1e-3}),
    ),
)
