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


class FromMemory(torch.autograd.Function):
    """The gradient reads its cotangent as if it were contiguous, as a kernel with a pointer does."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return x.cos() * dy.as_strided(dy.shape, torch.empty(dy.shape).stride())


def from_memory(x):
    return FromMemory.apply(x)


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
