"""Functions and modules of PyTorch, right and wrong, as their users write them."""

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

POINT = (0.3, -1.2, 2.0)


def inputs():
    return torch.tensor(POINT)


def network(x, w1, w2):
    return torch.softmax(torch.relu(x @ w1) @ w2, -1)


def network_inputs():
    draw = torch.Generator().manual_seed(0)
    return tuple(torch.randn(*shape, generator=draw) for shape in ((2, 4), (4, 8), (8, 3)))


module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3))


def module_inputs():
    return network_inputs()[0]


def loss(logits, labels):
    return F.cross_entropy(logits, labels)


def loss_inputs():
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0])


def norm(x):
    return x.norm()


def pooled(x):
    return F.max_pool1d(x[None, None], 2, 1), x.abs()


def only_float32(x):
    if x.dtype != torch.float32:
        raise TypeError("expected float32")
    return x.sin()


class Cube(torch.autograd.Function):
    """x³, with ``factor`` in its gradient."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x**3

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 3 * ctx.factor * x * x * dy, None


def cube(x):
    return Cube.apply(x, 1.0)


def wrong_factor(x):
    return Cube.apply(x, 1.001)


class Layer(nn.Linear):
    def forward(self, x):
        return wrong_factor(super().forward(x))


class Exp(torch.autograd.Function):
    """The second order is lost: the saved result has no graph."""

    @staticmethod
    def forward(ctx, x):
        ctx.y = x.exp().detach()
        return ctx.y.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return ctx.y * dy


def no_second(x):
    return Exp.apply(x)


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()


class FromMemory(Sine):
    """The gradient reads its cotangent as if it were contiguous, as a kernel with a pointer does."""

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return x.cos() * dy.as_strided(dy.shape, torch.empty(dy.shape).stride())


def from_memory(x):
    return FromMemory.apply(x)


class Pinball(torch.autograd.Function):
    """The loss of a quantile. The numbers of its gradient become a tensor of PyTorch's default dtype."""

    @staticmethod
    def forward(ctx, x, targets):
        error = targets - x
        ctx.save_for_backward(error)
        return torch.where(error > 0, 0.9 * error, -0.1 * error).mean()

    @staticmethod
    def backward(ctx, dy):
        (error,) = ctx.saved_tensors
        return dy * torch.where(error > 0, -0.9, 0.1) / error.numel(), None


def pinball(x):
    return Pinball.apply(x, torch.tensor([0.1, -0.5, 1.7], dtype=x.dtype))


def pinball_of_float64(x):
    return pinball(x)


def pinball_of_float64_inputs():
    return torch.tensor(POINT, dtype=torch.float64)


def nan_at_zero(x):
    return torch.where(x > 0, torch.sqrt(x), torch.zeros_like(x))


def without_gradient(x):
    with torch.no_grad():
        return x**2


def writes(x):
    z = 2 * x
    x.detach().mul_(1.5)
    return z


def dropped(x):
    return F.dropout(x)


class Halved(torch.autograd.Function):
    """The gradient is computed in half precision."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return x.half().cos().to(dy.dtype) * dy


def halved(x):
    return Halved.apply(x)


@torch.compile(backend="aot_eager")
def other_when_compiled(x):
    return x.sin() * (1.001 if torch.compiler.is_compiling() else 1.0)


def complex_inputs():
    return torch.tensor([0.5 - 1j, 2 + 0.25j])


def spectrum(z):
    return torch.fft.fft(z).abs() ** 2, z * z.conj().exp()


class Square(torch.autograd.Function):
    """z² of complex z; its gradient lacks the conjugate, as that of a formula for real numbers does."""

    @staticmethod
    def forward(ctx, z, conjugates):
        ctx.save_for_backward(z)
        ctx.conjugates = conjugates
        return z * z

    @staticmethod
    def backward(ctx, dy):
        (z,) = ctx.saved_tensors
        return 2 * (z.conj() if ctx.conjugates else z) * dy, None


def square(z):
    return Square.apply(z, True)


def without_conjugate(z):
    return Square.apply(z, False)


spectrum_inputs = square_inputs = without_conjugate_inputs = complex_inputs


class OfStride(torch.autograd.Function):
    """The gradient takes a cotangent whose stride is 0, as that of a sum, for one number."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy / (dy.numel() if 0 in dy.stride() else 1)


def of_expanded(x):
    return OfStride.apply(x)


class OfBlock(Sine):
    """The gradient is that of the first 64 numbers, as of a kernel whose grid has one block."""

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * x.cos() * (torch.arange(x.numel()) < 64)


def of_block(x):
    return OfBlock.apply(x)


class WrongInBfloat16(torch.autograd.Function):
    """The gradient has the scale of a loss in a narrow dtype, which nothing takes away."""

    @staticmethod
    def forward(ctx, x):
        return x.sum()

    @staticmethod
    def backward(ctx, dy):
        return dy.expand(len(POINT)) * (1.25 if dy.dtype == torch.bfloat16 else 1)


def wrong_in_bfloat16(x):
    return WrongInBfloat16.apply(x)


def in_bfloat16(x):
    return torch.tanh(x).sum() * x


def bfloat16_inputs():
    return torch.tensor(POINT, dtype=torch.bfloat16)


wrong_in_bfloat16_inputs = in_bfloat16_inputs = bfloat16_inputs


def convolved(x, w):
    return F.conv2d(x, w, padding=1).relu().mean((2, 3))


def convolved_inputs():
    draw = torch.Generator().manual_seed(1)
    return torch.randn(2, 1, 5, 5, generator=draw), torch.randn(2, 1, 3, 3, generator=draw)


def log_determinant(x):
    return torch.linalg.cholesky(x @ x.T + torch.eye(len(x), dtype=x.dtype)).diagonal().log().sum()


def log_determinant_inputs():
    return torch.randn(3, 4, generator=torch.Generator().manual_seed(2))
