"""``tesseract_torch.apply_tesseract``: another client through which PyTorch differentiates the ops."""

import pytest
import torch
from tesseract_core import Tesseract
from tesseract_torch import apply_tesseract
from torch.autograd import forward_ad

X = torch.tensor([-1.5, 0.25, 3.0])


@pytest.fixture
def apply(url):
    """Return a function that applies an op, by name, to its inputs and attributes."""

    def call(op: str, **fields):
        return apply_tesseract(Tesseract.from_url(f"{url}/tesseract/{op}"), fields)

    return call


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_reverse_mode_in_each_dtype(apply, dtype) -> None:
    x = X.to(dtype).requires_grad_()
    y = apply("square", x=x)["y"]
    (dx,) = torch.autograd.grad(y, x, torch.ones_like(y))
    assert y.dtype == dx.dtype == dtype
    assert torch.equal(y, x.detach() ** 2)
    assert torch.equal(dx, 2 * x.detach())


def test_forward_mode(apply) -> None:
    with forward_ad.dual_level():
        y = apply("square", x=forward_ad.make_dual(X, torch.full_like(X, 0.5)))["y"]
        assert torch.equal(forward_ad.unpack_dual(y).tangent, X)


def test_an_output_without_a_cotangent_has_none(apply) -> None:
    a = torch.tensor([[2.0, 1.0], [1.0, 3.0]], dtype=torch.float64, requires_grad=True)
    w = apply("self_adjoint_eig", a=a, broadening=0.0)["w"]
    (w[1] - w[0]).backward()
    values, vectors = torch.linalg.eigh(a.detach())
    expected = torch.outer(vectors[:, 1], vectors[:, 1]) - torch.outer(vectors[:, 0], vectors[:, 0])
    assert torch.allclose(w.detach(), values, rtol=1e-14)
    assert torch.allclose(a.grad, expected, atol=1e-14)


def test_a_model_learns(apply) -> None:
    """Labels must be int32, the op's dtype: arrays are not cast."""
    torch.manual_seed(0)
    layer, points, labels = torch.nn.Linear(4, 3), torch.randn(32, 4), torch.randint(3, (32,))
    with pytest.raises(ValueError, match="expected one of int32, got int64"):
        apply("softmax_cross_entropy", logits=layer(points), labels=labels)
    losses, descent = [], torch.optim.SGD(layer.parameters(), lr=0.5)
    for _ in range(5):
        own = torch.nn.functional.cross_entropy(layer(points), labels)
        gradient = torch.autograd.grad(own, layer.weight)
        loss = apply("softmax_cross_entropy", logits=layer(points), labels=labels.to(torch.int32))["loss"].mean()
        descent.zero_grad()
        loss.backward()
        assert torch.allclose(loss, own)
        assert torch.allclose(layer.weight.grad, gradient[0], atol=1e-6)
        descent.step()
        losses.append(loss.item())
    assert sorted(losses, reverse=True) == losses


def test_a_second_order_is_an_error_and_no_wrong_number(apply) -> None:
    x = X.clone().requires_grad_()
    (dx,) = torch.autograd.grad(apply("square", x=x)["y"].sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.autograd.grad(dx.sum(), x)
    (of_gradient,) = torch.autograd.grad(apply("square.vjp", x=x, dy=torch.ones_like(X))["dx"].sum(), x)
    assert torch.equal(of_gradient, torch.full_like(X, 2.0))
