"""pullback.torch: PyTorch's own proofs of derivatives, torch.func, compilers, and how many requests they take."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.testing import assert_close

import pullback
import pullback.torch

LOGITS, LABELS = [[1.0, -0.5, 2.0], [0.25, 0.0, -3.0]], [2, 0]
SYMMETRIC = [[2.0, 1.0, 0.0], [1.0, 3.0, -1.0], [0.0, -1.0, 5.0]]
FEATURES, ROIS = np.arange(32.0).reshape(1, 4, 4, 2), [[0.0, 0, 0, 3, 3], [0, 1, 1, 2, 3]]
MATRICES = (np.arange(12.0).reshape(3, 2, 2) / 7).tolist()
MODES = [jacfwd, jacrev]
softplus = torch.nn.functional.softplus


def tensor(values: Any, dtype: torch.dtype = torch.float64, **options: Any) -> torch.Tensor:
    return torch.tensor(np.array(values), dtype=dtype, **options)


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(logits, labels, reduction="none")


@pytest.mark.parametrize(
    ("name", "attrs", "inputs", "constants"),
    [
        ("log1pexp", None, [[-0.5, 0.25, 2.0]], []),
        ("squares", None, [[0.5, 2.0], [-1.0, 3.0]], []),
        ("safe_norm", None, [[3.0, -1.0, 0.5]], []),
        ("softmax_cross_entropy", None, [LOGITS], [torch.tensor(LABELS)]),
        ("self_adjoint_eig", None, [SYMMETRIC], []),
        ("roi_pool", {"pooled_height": 2, "pooled_width": 1}, [FEATURES], [tensor(ROIS)]),
    ],
)
def test_gradcheck_and_gradgradcheck(remote, name: str, attrs: Any, inputs: Any, constants: Any) -> None:
    op = remote(name, attrs=attrs)
    given = [tensor(x, requires_grad=True) for x in inputs]
    f = lambda *xs: op(*xs, *constants)  # noqa: E731
    assert gradcheck(f, given, check_forward_ad=True)
    assert gradgradcheck(f, given, check_fwd_over_rev=True)


def test_gradcheck_of_float32(remote) -> None:
    f, x = remote("zero_out_indexed"), tensor([5.0, 4.0, 3.0], torch.float32, requires_grad=True)
    assert gradcheck(f, (x,), eps=1e-2, atol=1e-2, check_forward_ad=True)


@pytest.mark.parametrize("outer", MODES)
@pytest.mark.parametrize("inner", MODES)
def test_hessians_in_all_orders_of_modes(remote, outer: Any, inner: Any) -> None:
    x, f, s = tensor([-0.5, 0.25, 2.0]), remote("log1pexp"), remote("softmax_cross_entropy")
    assert_close(outer(inner(f))(x), outer(inner(softplus))(x))
    logits, labels = tensor(LOGITS), torch.tensor(LABELS)
    assert_close(outer(inner(lambda x: s(x, labels)))(logits), outer(inner(lambda x: cross_entropy(x, labels)))(logits))


def test_third_order(remote) -> None:
    f, x = remote("log1pexp"), tensor([0.5, -1.0])
    third = lambda f: grad(lambda x: hessian(lambda x: f(x).sum())(x).sum())(x)  # noqa: E731
    assert_close(third(f), third(softplus))


def test_the_second_order_that_the_author_declared_arrives(remote) -> None:
    f, x = remote("log1pexp2"), tensor([1.0, 0.5], requires_grad=True)
    (first,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert_close(second, (1 - x.exp()).detach())
    assert_close(hessian(lambda x: f(x).sum())(x.detach()), torch.diag(second))


def test_a_second_order_that_is_not_symmetric_keeps_its_sides(remote) -> None:
    """Row i of the Hessian has the derivatives of the gradient's entry i: H[0] = [0 1; 2 3], not its transpose."""
    f, x, z = remote("skewed"), tensor([1.0, 2.0]), tensor([4.0, 5.0])
    m, v = tensor([[0.0, 1.0], [2.0, 3.0]]), tensor([1.0, 10.0])
    for outer in MODES:
        h = outer(grad(f, (0, 1)), (0, 1))(x, z)
        assert_close([h[0][0], h[0][1], h[1][0]], [m, 3 * torch.eye(2).double(), 5 * torch.eye(2).double()])
    assert_close(jvp(lambda x: grad(f)(x, z), (x,), (v,))[1], m @ v)
    assert_close(vjp(lambda x: grad(f)(x, z), x)[1](v)[0], m.T @ v)


def test_vmap_of_points_directions_and_both(remote) -> None:
    logits, labels = tensor(LOGITS) * torch.arange(1.0, 4)[:, None, None], torch.tensor(LABELS)
    points = tensor([[-0.5, 0.25], [2.0, 1.0], [1.0, 3.0]])
    for ours, theirs, given in [
        (remote("log1pexp"), softplus, [points]),
        (remote("softmax_cross_entropy"), cross_entropy, [logits, labels]),
        (remote("safe_norm"), torch.linalg.norm, [points]),
        (remote("matmul"), torch.matmul, [tensor(MATRICES), tensor(MATRICES[0])]),
    ]:
        dims = (0, *(None for _ in given[1:]))
        total, want = (lambda *a, f=f: f(*a).sum() for f in (ours, theirs))
        for f, g in [(ours, theirs), (grad(total), grad(want)), (hessian(total), hessian(want))]:
            assert_close(vmap(f, dims)(*given), vmap(g, dims)(*given))
    assert_close(vmap(vmap(remote("log1pexp")), 1)(points), softplus(points).T)
    # The derivatives of a vmap of points, and of their Jacobians.
    a = tensor(MATRICES)
    for of in (lambda f, a: vmap(f)(a, a).pow(3).sum(), lambda f, a: vmap(jacrev(f))(a, a).pow(2).sum()):
        found, expected = (grad(partial(of, f))(a) for f in (remote("matmul"), torch.matmul))
        assert_close(found, expected)
    # The gradient of a vmap of directions at one shared point.
    f, x = remote("log1pexp"), points[0]
    third = lambda f: grad(lambda x: vmap(vjp(f, x)[1])(torch.eye(2).double())[0].pow(2).sum())(x)  # noqa: E731
    assert_close(third(f), third(softplus))


def test_inputs_that_are_not_differentiable_have_no_gradient(remote) -> None:
    logits, labels = tensor(LOGITS, requires_grad=True), torch.tensor(LABELS)
    remote("softmax_cross_entropy")(logits, labels).sum().backward()
    assert labels.grad is None
    rois = tensor(ROIS, requires_grad=True)
    pooled, argmax = remote("roi_pool")(tensor(FEATURES, requires_grad=True), rois)
    pooled.sum().backward()
    assert rois.grad is None
    assert not argmax.requires_grad
    assert argmax.dtype == torch.int32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_dtype_is_that_of_the_tensor(remote, dtype: torch.dtype) -> None:
    f, x = remote("log1pexp"), tensor([0.5, 1.0], dtype, requires_grad=True)
    y = f(x)
    y.sum().backward()
    assert y.dtype == x.grad.dtype == hessian(lambda x: f(x).sum())(x.detach()).dtype == dtype
    assert_close(y, softplus(x))


def test_a_gradient_that_is_not_linear_has_a_vjp_and_says_why_it_has_no_jvp(remote) -> None:
    f, x = remote("clip_gradient"), tensor([0.5, 1.0], requires_grad=True)
    (first,) = torch.autograd.grad((3 * f(x)).sum(), x, create_graph=True)
    assert first.tolist() == [0.5, 0.5]
    assert torch.autograd.grad(first.sum(), x)[0].tolist() == [0, 0]
    with pytest.raises(pullback.Unprocessable, match="is not linear in the cotangent, so it has no jvp"):
        jvp(f, (x.detach(),), (x.detach(),))


def test_errors_have_the_words_of_the_service(remote) -> None:
    s, logits = remote("softmax_cross_entropy"), tensor(LOGITS)
    with pytest.raises(pullback.Unprocessable, match="expected 0 <= label < 3, the number of classes, got 7"):
        s(logits, torch.tensor([7, 0]))
    with pytest.raises(pullback.NotFound, match="log1pex"):
        remote("log1pex")(logits)


def test_a_module_trains_and_results_are_the_callers(remote) -> None:
    f, layer = remote("log1pexp"), torch.nn.Linear(2, 1)
    optimizer, x = torch.optim.SGD(layer.parameters(), 0.5), torch.eye(2)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = f(functional_call(layer, dict(layer.named_parameters()), x)).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
    y = f(x)
    y.zero_()
    assert_close(f(x), softplus(x))


def test_value_gradient_and_hvp_at_a_point_are_one_request(remote, count) -> None:
    f, x = remote("log1pexp"), tensor([-0.5, 0.25, 2.0], requires_grad=True)
    count()
    y = f(x).sum()
    (first,) = torch.autograd.grad(y, x, create_graph=True)
    (product,) = torch.autograd.grad(first, x, torch.ones_like(x))
    s = torch.sigmoid(x.detach())
    assert_close([y.detach(), first.detach(), product], [softplus(x.detach()).sum(), s, s * (1 - s)])
    assert count() == 1
    hessian(lambda x: f(x).sum())(x.detach() + 1)
    assert count() <= 2


def test_compiled_functions_have_no_graph_breaks(remote) -> None:
    s, labels = remote("softmax_cross_entropy"), torch.tensor(LABELS)
    compiled = torch.compile(lambda x: s(2 * x, labels).sum(), fullgraph=True, backend="aot_eager")
    x = tensor(LOGITS, requires_grad=True)
    y = compiled(x)
    y.backward()
    want = x.detach().clone().requires_grad_()
    cross_entropy(2 * want, labels).sum().backward()
    assert_close(x.grad, want.grad)
    pair = torch.compile(remote("zero_out_indexed"), fullgraph=True, backend="aot_eager")
    x = tensor([5.0, 4.0], torch.float32, requires_grad=True)
    pair(x)[0].sum().backward()
    assert x.grad.tolist() == [1, 0]


def test_compiled_vmap(remote) -> None:
    f, x = remote("safe_norm"), tensor([[3.0, 4.0], [0.0, 2.0]])
    assert_close(torch.compile(vmap(f), fullgraph=True, backend="aot_eager")(x), tensor([5.0, 2.0]))


def test_exported_programs_call_the_service(remote) -> None:
    class Model(torch.nn.Module):
        f = staticmethod(remote("log1pexp"))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.f(2 * x)

    x = tensor([0.5, 1.0])
    assert_close(torch.export.export(Model(), (x,)).module()(x), softplus(2 * x))


def test_forward_mode_in_a_compiled_function_is_refused_not_wrong(remote) -> None:
    f, x = remote("log1pexp"), tensor([0.5, 1.0])
    compiled = torch.compile(lambda x: jvp(f, (x,), (x,))[1], fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match=r"call torch\.func\.jvp outside of it"):
        compiled(x)


def test_opcheck(remote) -> None:
    p = pullback.torch.Derivative(pullback.torch.Remote("log1pexp", remote.keywords["url"]))
    x = tensor([0.5, 1.0], requires_grad=True)
    arguments = (pullback.torch._text(p), False, False, False, [x])
    torch.library.opcheck(torch.ops.pullback.evaluate.default, arguments)
