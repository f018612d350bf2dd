r"""Eigenvalues of the channel covariance of a convolution: a subgraph with one gradient of its own.

R = x * f (2-D convolution, stride 1, no padding) has n = (H - K + 1)(W - L + 1) positions of D channels in each image; R̃
is R less its mean over the positions, as an n by D matrix; S = R̃ᵀR̃/n is the covariance, S = V diag(w) Vᵀ, and w ascends.

- first order: dR = (2/n) R̃ M with M = V diag(dw) Vᵀ; dx and df are the convolution's own pullbacks of dR;
- second order, with T = ddx * f + x * ddf, T̃ = T less its mean, C = Vᵀ(R̃ᵀT̃ + T̃ᵀR̃)V/n, d[i,j] = w[j] - w[i] and
  F = d/(d² + β²): diag(C) for dw; for x and f the pullbacks of (2/n)(T̃ M + R̃ Ṁ) as at first order, where
  Ṁ = V (F∘C∘E) Vᵀ and E[i,j] = dw[j] - dw[i], plus dR pulled back through ddf to x and, against ddx, to f.

The first order needs no 1/d, so it is finite everywhere. Where eigenvalues meet they have a kink, and it is the answer
of one eigenbasis; a cotangent that treats them alike (the trace, say) sees no kink. With n <= D some eigenvalues are 0
by construction and their gradient is 0, which is exact.

The second order has a pole where eigenvalues meet, as they do with n < D: 1/d there is NaN, times an exact zero 0, and very
large where they differ by rounding only. The attribute ``broadening`` is β above, in the unit of the covariance: 0, the
default, is the exact derivative; β > 0 is finite everywhere and claims the formula.

Source: https://stackoverflow.com/questions/43256517 (how to define the gradient of a whole TensorFlow subgraph, a
convolution and an eigenvalue decomposition); Giles (2008), section 3.1, and Liao et al. (2019), section III.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np
import tensorflow as tf
from pydantic import Field

from ops import Array, Arrays, Attrs, Claim, Example, Formula, Input, InvalidInput, Op, Output, Tensor, custom_gradient
from ops.self_adjoint_eig import OP as EIG
from ops.self_adjoint_eig import lorentzian


class ConvEigAttrs(Attrs):
    """The broadening β of 1/(w[j] - w[i]) in the second order, in the unit of the covariance; 0 is the exact derivative."""

    broadening: float = Field(default=0.0, ge=0)


def forward(x: Tensor, f: Tensor, *, broadening: Tensor) -> Tensor:
    """w of the covariance of x * f; the broadening is in the second order alone."""
    w, _ = EIG.function(_covariance(_centred(_convolved(x, f))), broadening=broadening)
    return w
