"""Modules of PyTorch as their users write them, each with one common mistake in ``NAME_mistaken``."""

import torch
from torch import nn
from torch.nn import functional as F

DRAW = torch.Generator().manual_seed(3)


def numbers(*shape):
    return torch.randn(*shape, generator=DRAW)


class LeakyRelu(torch.autograd.Function):
    """Right with ``factor`` 1: it is that of the gradient's slope for x < 0."""

    @staticmethod
    def forward(ctx, x, slope, factor):
        ctx.save_for_backward(x)
        ctx.slope = slope * factor
        return torch.where(x > 0, x, slope * x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return torch.where(x > 0, dy, ctx.slope * dy), None, None


class StaleRelu(torch.autograd.Function):
    """The mask is that of the incoming gradient: guided backpropagation."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy.clamp(min=0) * (x > 0)


class Gelu(torch.autograd.Function):
    """The gradient is that of x Φ(x) without the term of the density."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return F.gelu(x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * 0.5 * (1 + torch.erf(x / 2**0.5))


class Swish(torch.autograd.Function):
    """The sigmoid is detached."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return dy * torch.sigmoid(x)


class SumPool(torch.autograd.Function):
    """The mean over the last axis, whose gradient lacks 1/n."""

    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.mean(-1)

    @staticmethod
    def backward(ctx, dy):
        return dy[..., None].expand(ctx.shape)


class Linear(torch.autograd.Function):
    """The weight is not transposed in the backward pass, which a square one hides."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w.T

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return dy @ w.T, dy.transpose(-1, -2) @ x


class Softmax(torch.autograd.Function):
    """The gradient is that of independent sigmoids."""

    @staticmethod
    def forward(ctx, x):
        y = x.softmax(-1)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy * y * (1 - y)


class Act(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def seeded(make, *given):
    """Return a module with the same weights for each way to make it."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return make(*given)


def with_inputs(module, *arguments):
    module.inputs = arguments
    return module


def perceptron(act):
    return nn.Sequential(nn.Linear(4, 16), act, nn.Linear(16, 16), act, nn.Linear(16, 3))


X = numbers(2, 4)
mlp_relu = with_inputs(seeded(perceptron, nn.ReLU()), X)
mlp_relu_mistaken = with_inputs(seeded(perceptron, Act(StaleRelu.apply)), X)
mlp_gelu = with_inputs(seeded(perceptron, nn.GELU()), X)
mlp_gelu_mistaken = with_inputs(seeded(perceptron, Act(Gelu.apply)), X)
mlp_leaky = with_inputs(seeded(perceptron, nn.LeakyReLU(0.1)), X)
mlp_leaky_mistaken = with_inputs(seeded(perceptron, Act(lambda x: LeakyRelu.apply(x, 0.1, 0.5))), X)


def image_classifier(act):
    return nn.Sequential(
        *(nn.Conv2d(1, 3, 3, padding=1), act, nn.MaxPool2d(2), nn.Conv2d(3, 4, 3), act),
        *(nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 3)),
    ).eval()


PICTURES = numbers(2, 1, 8, 8)
convnet = with_inputs(seeded(image_classifier, nn.ReLU()), PICTURES)
convnet_mistaken = with_inputs(seeded(image_classifier, Act(StaleRelu.apply)), PICTURES)


class Normalised(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 6), norm, nn.Linear(6, 2)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x))))


class DetachedNorm(nn.BatchNorm1d):
    """The mean and the variance of the batch are constants to the gradient."""

    def forward(self, x):
        m, v = x.mean(0).detach(), x.var(0, unbiased=False).detach()
        return (x - m) / torch.sqrt(v + self.eps) * self.weight + self.bias


BATCH = numbers(5, 4)
batch_norm = with_inputs(seeded(lambda: Normalised(nn.BatchNorm1d(6))), BATCH)
batch_norm_mistaken = with_inputs(seeded(lambda: Normalised(DetachedNorm(6))), BATCH)


class Reader(nn.Module):
    def __init__(self, cell, pool):
        super().__init__()
        self.words, self.cell, self.pool, self.head = nn.Embedding(7, 4), cell(4, 5), pool, nn.Linear(5, 2)

    def forward(self, tokens):
        found, _ = self.cell(self.words(tokens))
        return self.head(self.pool(found.transpose(0, 1).transpose(1, 2)))


TOKENS = torch.tensor([[1, 4], [0, 2], [6, 1], [3, 3]])
lstm = with_inputs(seeded(Reader, nn.LSTM, Act(lambda h: h.mean(-1))), TOKENS)
lstm_mistaken = with_inputs(seeded(Reader, nn.LSTM, Act(SumPool.apply)), TOKENS)
gru = with_inputs(seeded(Reader, nn.GRU, Act(lambda h: h.amax(-1))), TOKENS)
gru_mistaken = with_inputs(
    seeded(Reader, nn.GRU, Act(lambda h: h.amax(-1).detach() + h[..., -1] - h[..., -1].detach())), TOKENS
)


class Attention(nn.Module):
    def __init__(self, softmax):
        super().__init__()
        self.qkv, self.norm, self.softmax = nn.Linear(4, 12), nn.LayerNorm(4), softmax

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        return x + self.softmax(q @ k.transpose(-1, -2) / 2) @ v


SEQUENCE = numbers(2, 3, 4)
attention = with_inputs(seeded(Attention, nn.Softmax(-1)), SEQUENCE)
attention_mistaken = with_inputs(seeded(Attention, Act(Softmax.apply)), SEQUENCE)


class Classifier(nn.Module):
    """The loss of a classifier with a hand-written linear layer."""

    def __init__(self, linear):
        super().__init__()
        self.body, self.weight, self.linear = nn.Linear(4, 3), nn.Parameter(torch.randn(3, 3)), linear

    def forward(self, x, labels):
        return F.cross_entropy(self.linear(F.silu(self.body(x)), self.weight), labels)


LABELS = torch.tensor([0, 2, 1, 1, 0])
cross_entropy = with_inputs(seeded(Classifier, F.linear), BATCH, LABELS)
cross_entropy_mistaken = with_inputs(seeded(Classifier, Linear.apply), BATCH, LABELS)


def transformer(act):
    layer = nn.TransformerEncoderLayer(4, 2, 8, activation=act, batch_first=True, norm_first=True)
    return nn.Sequential(layer, nn.Linear(4, 1)).eval()


encoder = with_inputs(seeded(transformer, F.silu), SEQUENCE)
encoder_mistaken = with_inputs(seeded(transformer, Swish.apply), SEQUENCE)


class Regression(nn.Module):
    def __init__(self, reduce):
        super().__init__()
        self.line, self.reduce = nn.Linear(4, 1), reduce

    def forward(self, x, y):
        return self.reduce((self.line(x)[:, 0] - y) ** 2)


TARGETS = numbers(5)
linear_regression = with_inputs(seeded(Regression, torch.mean), BATCH, TARGETS)
linear_regression_mistaken = with_inputs(seeded(Regression, SumPool.apply), BATCH, TARGETS)


class Mixed(nn.Module):
    """A perceptron under autocast, and its loss in float32."""

    def __init__(self, act):
        super().__init__()
        self.first, self.last, self.act = nn.Linear(4, 8), nn.Linear(8, 3), act

    def forward(self, x, labels):
        with torch.autocast("cpu", torch.bfloat16):
            logits = self.last(self.act(self.first(x.bfloat16())))
        return F.cross_entropy(logits.float(), labels)


mixed = with_inputs(seeded(Mixed, F.silu), BATCH, LABELS)
mixed_mistaken = with_inputs(seeded(Mixed, Swish.apply), BATCH, LABELS)


def cube_root(a, keep):
    """Return a root by damped steps of Newton, which end by a tolerance."""
    x = torch.ones_like(a)
    while True:
        step = (x**3 - keep(a)) / (6 * x**2)
        x = x - step
        if step.abs().max() < 1e-6:
            return x


def newton(a):
    return cube_root(a, lambda a: a)


def newton_mistaken(a):
    """Return a root whose gradient is too small."""
    return cube_root(a, lambda a: 0.9 * a + 0.1 * a.detach())


def newton_inputs():
    return torch.tensor([2.0, 3.0], dtype=torch.float64)


newton_mistaken_inputs = newton_inputs
MODELS = (
    *("mlp_relu", "mlp_gelu", "mlp_leaky", "convnet", "batch_norm", "lstm", "gru", "attention", "cross_entropy"),
    *("encoder", "linear_regression", "mixed", "newton"),
)
