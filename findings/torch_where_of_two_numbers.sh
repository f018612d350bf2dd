#!/usr/bin/env bash
# PyTorch 2.13.0: torch.where of two Python numbers is float32 beside float64, and gradcheck does not see it.
#
# A number beside a tensor takes the tensor's dtype, so -0.9 * x is exact in float64. torch.where(c, -0.9, 0.1) has no
# such tensor: it takes the default dtype, and a product with float64 carries its rounding on as float64. The gradient
# of a quantile loss that is written so has 8 digits in float64; autograd's gradcheck accepts it, because its tolerance
# is 1e-3 of a number. Seen:
#
#   dtype of the gradient: torch.float64
#   relative error: 2.6e-08
#   gradcheck: True
#
# This is the build without CUDA, of PyTorch's own index. Exits with 0 while this is so, else with 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0+cpu numpy==2.4.1
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import torch


class Quantile(torch.autograd.Function):
    """The sum of 0.9 e where e is positive, and of -0.1 e elsewhere."""

    @staticmethod
    def forward(ctx, e):
        ctx.save_for_backward(e)
        return torch.where(e > 0, 0.9 * e, -0.1 * e).sum()

    @staticmethod
    def backward(ctx, dy):
        (e,) = ctx.saved_tensors
        return dy * torch.where(e > 0, 0.9, -0.1)


e = torch.tensor([0.5, -2.0], dtype=torch.float64, requires_grad=True)
(gradient,) = torch.autograd.grad(Quantile.apply(e), e)
expected = torch.tensor([0.9, -0.1], dtype=torch.float64)
error = ((gradient - expected) / expected).abs().max().item()
is_accepted = torch.autograd.gradcheck(Quantile.apply, (e,))
print("dtype of the gradient:", gradient.dtype)
print(f"relative error: {error:.2g}")
print("gradcheck:", is_accepted)
sys.exit(not (gradient.dtype == torch.float64 and error > 1e-9 and is_accepted))
PYTHON
