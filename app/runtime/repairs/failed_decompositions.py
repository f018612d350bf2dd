"""Cholesky factors of matrices that have none.

TensorFlow 2.21 then writes NaN into the lower triangle, and nothing into the upper one. If its numbers
are complex, it writes 0 in place of NaN.
"""

import math
from typing import Any

import tensorflow as tf

# Private, because TensorFlow's own functions, such as ``tf.linalg.logdet``, call it there.
from tensorflow.python.ops import gen_linalg_ops

from ops import Tensor


def install() -> None:
    """Let the upper triangle be 0, as it is for other matrices; call this before any program is built."""
    kernels: Any = gen_linalg_ops
    if hasattr(kernels.cholesky, "__wrapped__"):
        return
    kernel = kernels.cholesky

    def cholesky(input: Any, name: str | None = None) -> Tensor:
        factor = kernel(input, name=name)
        if factor.dtype.is_complex:
            has_failed = tf.reduce_any(tf.math.real(tf.linalg.diag_part(factor)) == 0, axis=-1)[..., None, None]
            factor = tf.where(has_failed, tf.cast(math.nan, factor.dtype), factor)
        return tf.linalg.band_part(factor, -1, 0)

    cholesky.__wrapped__ = kernel  # pyright: ignore[reportFunctionMemberAccess] - marks that this is installed
    public: Any = tf
    kernels.cholesky = public.linalg.cholesky = public.raw_ops.Cholesky = cholesky
    public.compat.v1.cholesky = public.compat.v1.linalg.cholesky = cholesky
