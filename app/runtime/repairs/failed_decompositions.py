"""Matrices without a decomposition, and systems without a solution: their results are NaN, or are not there.

TensorFlow 2.21 writes NaN into the lower triangle of a Cholesky factor that does not exist, and nothing into the upper
one. Where a least squares problem has no equations, it writes nothing at all. If numbers are complex, it writes 0 in
place of NaN: into Cholesky factors, singular values and vectors, and solutions of tridiagonal systems. Its logarithm of
a matrix never ends where some square root inside is NaN, as for three eigenvalues of 0. The eigenvalues of tridiagonal
matrices are any number beside infinite ones, and where squares overflow.
"""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

# Private, because TensorFlow's own functions, such as ``tf.linalg.logdet``, call these functions there.
from tensorflow.python.ops import gen_linalg_ops
from tensorflow.python.ops.linalg import linalg_impl  # for the same reason

from app.runtime.repairs.replacing import replace
from ops import Tensor

Kernel: TypeAlias = Callable[..., Any]


def install() -> None:
    """Replace these kernels; call this before any program is built."""
    kernels: Any = gen_linalg_ops
    for kernel, raw, mend in (
        (kernels.cholesky, "Cholesky", _cholesky),
        (kernels.matrix_logarithm, "MatrixLogarithm", _matrix_logarithm),
        (kernels.matrix_solve_ls, "MatrixSolveLs", _matrix_solve_ls),
        (kernels.svd, "Svd", _svd),
        (kernels.tridiagonal_solve, "TridiagonalSolve", _tridiagonal_solve),
    ):
        if not hasattr(kernel, "__wrapped__"):
            replace(kernel, mend(kernel), raw)
    impl: Any = linalg_impl
    if impl.eigh_tridiagonal.__module__ != __name__:
        replace(impl.eigh_tridiagonal, _eigh_tridiagonal(impl.eigh_tridiagonal))


def _cholesky(kernel: Kernel) -> Kernel:
    """Let the upper triangle be 0, as it is for other matrices."""

    def cholesky(input: Any, name: str | None = None) -> Tensor:
        factor = kernel(input, name=name)
        if factor.dtype.is_complex:
            factor = _nan_where(tf.reduce_any(tf.linalg.diag_part(factor) == 0, axis=-1), factor)
        return tf.linalg.band_part(factor, -1, 0)

    return cholesky


def _eigh_tridiagonal(function: Kernel) -> Kernel:
    """Let the eigenvalues be NaN for numbers that are infinite, and beside the diagonal for those whose squares are."""

    def eigh_tridiagonal(alpha: Any, beta: Any, *args: Any, **named: Any) -> Tensor:
        diagonal, beside = tf.convert_to_tensor(alpha), tf.convert_to_tensor(beta)
        found = function(diagonal, beside, *args, **named)
        is_valid = tf.reduce_all(tf.math.is_finite(tf.abs(diagonal)))
        is_valid &= tf.reduce_all(tf.math.is_finite(tf.square(tf.abs(beside))))
        return tf.where(is_valid, found, tf.cast(math.nan, found.dtype))

    return eigh_tridiagonal


def _matrix_logarithm(kernel: Kernel) -> Kernel:
    """Let the logarithm be NaN where there is none, or where two eigenvalues on both sides of the cut are nearly equal.

    The kernel gets no such matrix, because it may never return.
    """

    def matrix_logarithm(input: Any, name: str | None = None) -> Tensor:
        a = tf.convert_to_tensor(input)
        one = tf.eye(tf.shape(a)[-1], dtype=a.dtype)
        is_finite = tf.reduce_all(tf.math.is_finite(tf.abs(a)), axis=[-2, -1])
        roots = tf.sqrt(tf.linalg.eigvals(tf.where(is_finite[..., None, None], a, one)))
        left, right = roots[..., :, None], roots[..., None, :]
        is_apart = tf.abs(left + right) > np.finfo(a.dtype.as_numpy_dtype).eps ** 0.5 * (tf.abs(left) + tf.abs(right))
        has_logarithm = (is_finite & tf.reduce_all(is_apart, axis=[-2, -1]))[..., None, None]
        y = kernel(tf.where(has_logarithm, a, one), name=name)
        return tf.where(has_logarithm, y, tf.cast(math.nan, a.dtype))

    return matrix_logarithm


def _matrix_solve_ls(kernel: Kernel) -> Kernel:
    """Let the solution of no equations be the smallest one, 0."""

    def matrix_solve_ls(
        matrix: Any, rhs: Any, l2_regularizer: Any, fast: bool = True, name: str | None = None
    ) -> Tensor:
        a = tf.convert_to_tensor(matrix)
        x = kernel(a, rhs, l2_regularizer, fast=fast, name=name)
        has_rows = a.shape.rank is not None and a.shape[-2]
        return x if has_rows else tf.where(tf.shape(a)[-2] > 0, x, tf.zeros_like(x))

    return matrix_solve_ls


def _svd(kernel: Kernel) -> Kernel:
    """Let the parts of a complex matrix that has failed be NaN: another one that is not 0 has a singular value."""

    def svd(input: Any, compute_uv: bool = True, full_matrices: bool = False, name: str | None = None) -> Any:
        a = tf.convert_to_tensor(input)
        parts = kernel(a, compute_uv=compute_uv, full_matrices=full_matrices, name=name)
        if not a.dtype.is_complex:
            return parts
        has_failed = tf.reduce_all(parts.s == 0, axis=-1) & _is_not_zero(a)
        s = _nan_where(has_failed, parts.s[..., None])[..., 0]
        if not compute_uv:
            return parts._replace(s=s)
        return parts._replace(s=s, u=_nan_where(has_failed, parts.u), v=_nan_where(has_failed, parts.v))

    return svd


def _tridiagonal_solve(kernel: Kernel) -> Kernel:
    """Let the solution of a singular complex system be NaN: that of another one is 0 only if its right side is."""

    def tridiagonal_solve(diagonals: Any, rhs: Any, *args: Any, **named: Any) -> Tensor:
        b = tf.convert_to_tensor(rhs)
        x = kernel(diagonals, b, *args, **named)
        if not b.dtype.is_complex:
            return x
        return _nan_where(tf.reduce_all(x == 0, axis=[-2, -1]) & _is_not_zero(b), x)

    return tridiagonal_solve


def _is_not_zero(a: Tensor) -> Tensor:
    """Return which matrices have a number that is not 0, nor so small that it may underflow."""
    tiny = np.finfo(a.dtype.as_numpy_dtype).tiny
    return tf.reduce_any(~(tf.abs(a) < tiny), axis=[-2, -1])


def _nan_where(has_failed: Tensor, y: Tensor) -> Tensor:
    """Return matrices with NaN for each that has failed; the derivatives are NaN there too."""
    nan, one = tf.cast(math.nan, y.dtype), tf.ones([], y.dtype)
    # Not y times a factor for all: where y is infinite, 1 + 0i times y is NaN.
    failed = has_failed[..., None, None]
    return tf.where(failed, y * tf.where(failed, nan, one), y)
