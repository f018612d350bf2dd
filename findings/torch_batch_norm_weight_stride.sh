#!/usr/bin/env bash
# PyTorch 2.13.0: the CPU's backward of batch_norm reads a strided weight as if it were contiguous.
#
# A weight that is a column of a matrix has the same numbers as its contiguous copy, and batch_norm has the same values
# with both. Its gradient in the input differs: in place of the weight's numbers, backward reads those that lie one
# after the other in memory: here 1, 9, 2 for 1, 2, 3. These are the largest differences. Seen:
#
#   values: 1.1102230246251565e-16
#   gradients: 2.47
#
# This is the build without CUDA, of PyTorch's own index. Exits with 0 while the gradients differ, else with 1.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet torch==2.13.0+cpu numpy==2.4.1
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import torch


def values_and_gradient(weight):
    x = torch.tensor([[0.0, 1, 2], [1, 3, 1], [5, 2, 0], [2, 2, 4]], dtype=torch.float64, requires_grad=True)
    y = torch.nn.functional.batch_norm(x, None, None, weight, training=True)
    return y.detach(), torch.autograd.grad(y, x, torch.eye(4, 3, dtype=torch.float64))[0]


strided = torch.tensor([[1.0, 9], [2, 9], [3, 9]], dtype=torch.float64)[:, 0]
(y, dx), (same_y, other_dx) = values_and_gradient(strided.contiguous()), values_and_gradient(strided)
difference = (dx - other_dx).abs().max().item()
print("values:", (y - same_y).abs().max().item())
print("gradients:", round(difference, 2))
sys.exit(difference < 1e-6)
PYTHON
