"""Complex ops in PyTorch, which has TensorFlow's convention: each order against the same function in PyTorch."""

from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import pullback.torch

rng = np.random.default_rng(3)


def like(x: Any) -> torch.Tensor:
    parts = rng.normal(size=x.shape)
    return torch.tensor(parts + 1j * rng.normal(size=x.shape) if "complex" in str(x.dtype) else parts)


Z, R = like(np.zeros(3, complex)), like(np.zeros(3))
CASES = {
    "cx_square": (lambda z: z * z, (Z,)),
    "cx_conj": (torch.conj, (Z,)),
    "cx_abs2": (lambda z: torch.real(z * torch.conj(z)), (Z,)),
    "cx_phase": (lambda r, t: r * torch.exp(1j * t), (R, R.flip(0))),
    "cx_scale": (lambda a, z: a * z, (R, Z)),
    "cx_fft": (torch.fft.fft, (Z,)),
    "cx_irfft": (lambda z: torch.fft.irfft(z, 4), (Z,)),
    "cx_cubic": (lambda z: torch.conj(z) * z * z, (Z,)),
    "cx_parts": (lambda z: torch.complex(z.real * z.imag, torch.exp(z.imag)), (Z,)),
    "cx_and_back": (lambda x: torch.imag(torch.exp(1j * x) * (x + 2j)), (R,)),
    "cx_det": (torch.linalg.det, (like(np.zeros((2, 2), complex)),)),
    "cx_eig": (lambda x: torch.trace(x @ x @ x) / 3 + 0j, (like(np.zeros((3, 3))),)),
    "cx_rfft": (torch.fft.rfft, (like(np.zeros(4)),)),
    "cx_matmul": (lambda a, b: a @ b, (like(np.zeros((2, 3), complex)), like(np.zeros((3, 2), complex)))),
}


@pytest.mark.parametrize("name", CASES)
def test_every_order_is_that_of_pytorch(name, url) -> None:
    own, xs = CASES[name]
    weights, tangents = like(own(*xs)), [like(x) for x in xs]

    def derivatives(f: Any) -> list[torch.Tensor]:
        leaves = [x.clone().requires_grad_() for x in xs]
        y = f(*leaves)
        loss = (weights * y).real.sum() + (y.abs() ** 2).sum()
        first = torch.autograd.grad(loss, leaves, create_graph=True)
        along = sum((t.conj() * g).real.sum() for t, g in zip(tangents, first, strict=True))
        second = torch.autograd.grad(along, leaves)
        pulled = torch.autograd.grad(f(*leaves), leaves, weights)
        pushed = torch.func.jvp(f, xs, tuple(tangents))[1]
        return [x.detach().resolve_conj() for x in (y, *first, *second, *pulled, pushed)]

    for found, expected in zip(derivatives(pullback.torch.remote(name, url=url)), derivatives(own), strict=True):
        assert_close(found, expected, rtol=1e-10, atol=1e-10)
