"""pullback.pytensor: PyTensor's own proof of derivatives, its rewrites and its linkers; requests counted."""

import pickle
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.gradient import DisconnectedInputError, hessian, jacobian, verify_grad

import pullback
import pullback.pytensor

try:
    from pytensor.gradient import pushforward

    forward = partial(pushforward, use_op_pushforward=True)
except ImportError:  # before PyTensor 3
    from pytensor.gradient import Rop

    forward = partial(Rop, use_op_rop_implementation=True)

LOGITS, LABELS = np.array([[1.0, -0.5, 2.0], [0.25, 0.0, -3.0]]), np.array([2, 0])
SYMMETRIC = np.array([[2.0, 1.0, 0.0], [1.0, 3.0, -1.0], [0.0, -1.0, 5.0]])
FEATURES, ROIS = np.arange(32.0).reshape(1, 4, 4, 2), np.array([[0.0, 0, 0, 3, 3], [0, 1, 1, 2, 3]])
X = np.array([-0.5, 0.25, 2.0])
X_X = np.arange(9.0).reshape(3, 3)
S = 1 / (1 + np.exp(-X))
# All rewrites, and no compilation, which takes seconds.
compiled = partial(pytensor.function, mode=Mode(linker="py", optimizer="fast_run"), on_unused_input="ignore")


def outputs_of(found: Any) -> list[Any]:
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.parametrize(
    "case",
    [
        ("log1pexp", None, [X], []),
        ("squares", None, [X / 2, X / 2 + 1], []),
        ("softmax_cross_entropy", None, [LOGITS], [LABELS]),
        ("self_adjoint_eig", None, [SYMMETRIC], []),
        ("zero_out_indexed", None, [np.array([5.0, 4.0, 3.0])], []),
        ("roi_pool", {"pooled_height": 2, "pooled_width": 1}, [FEATURES], [ROIS]),
    ],
    ids=itemgetter(0),
)
def test_verify_grad_of_the_value_and_of_the_gradient(remote, case) -> None:
    name, attrs, xs, constants = case
    op, rng = remote(name, attrs=attrs), np.random.default_rng(0)

    def f(*xs: Any) -> Any:
        """Return the sum of the squares of the outputs: all outputs matter, and the gradient is not constant."""
        return sum((y**2).sum() for y in outputs_of(op(*xs, *constants)) if y.dtype == "float64")

    def gradient(*xs: Any) -> Any:
        return sum((g**2).sum() for g in pytensor.grad(f(*xs), list(xs)))

    mode = Mode(linker="py", optimizer="fast_run")
    for function in (f, gradient):
        verify_grad(function, xs, rng=rng, mode=mode)


def test_hessians_and_forward_mode(remote) -> None:
    f, x, v = remote("log1pexp"), pt.dvector("x"), pt.dvector("v")
    total = f(x).sum()
    g = pytensor.grad(total, x)
    results = compiled(
        [x, v],
        [
            hessian(total, x),
            jacobian(g, x, vectorize=True),
            forward(f(x), x, v),
            forward(g, x, v),
            pytensor.grad(pytensor.grad(g.sum(), x).sum(), x),
        ],
    )(X, X)
    second = S * (1 - S)
    wanted = [np.diag(second), np.diag(second), S * X, second * X, second * (1 - 2 * S)]
    for result, want in zip(results, wanted, strict=True):
        np.testing.assert_allclose(result, want, atol=1e-12)


def test_a_second_order_that_is_not_symmetric_keeps_its_sides(remote) -> None:
    """Row i of the Hessian has the derivatives of the gradient's entry i: H = [0 1; 2 3], not its transpose."""
    f, x, z, v = remote("skewed"), *map(pt.dvector, "xzv")
    g, m = pytensor.grad(f(x, z), x), np.array([[0.0, 1.0], [2.0, 3.0]])
    results = [hessian(f(x, z), x), jacobian(g, x, vectorize=True), forward(g, x, v), pytensor.grad((g * v).sum(), x)]
    given = [[1.0, 2.0], [4.0, 5.0], direction := [1.0, 10.0]]
    wanted = [m, m, m @ direction, m.T @ direction]
    for found, want in zip(compiled([x, z, v], results)(*given), wanted, strict=True):
        np.testing.assert_allclose(found, want)


def test_vectorize(remote) -> None:
    point, points, labels = pt.dvector("point"), pt.dmatrix("points"), pt.lvector("labels")
    f, norm, s = remote("log1pexp"), remote("safe_norm"), remote("softmax_cross_entropy")
    vectorize = pytensor.graph.replace.vectorize_graph
    rows = np.stack([X, X + 1])
    for y, want in [
        (f(point), np.log1p(np.exp(rows))),
        (norm(point), np.linalg.norm(rows, axis=1)),
        (pytensor.grad(norm(point), point), rows / np.linalg.norm(rows, axis=1)[:, None]),
    ]:
        np.testing.assert_allclose(compiled([points], vectorize(y, {point: points}))(rows), want)
    logits, many = pt.dmatrix("logits"), pt.dtensor3("many")
    total = vectorize(s(logits, labels), {logits: many}).sum()
    found = compiled([many, labels], pytensor.grad(total, many))(LOGITS[None] * np.ones((2, 1, 1)), LABELS)
    single = compiled([logits, labels], pytensor.grad(s(logits, labels).sum(), logits))(LOGITS, LABELS)
    np.testing.assert_allclose(found, [single, single])


def test_inputs_that_are_not_differentiable_are_disconnected(remote) -> None:
    logits, labels = pt.dmatrix("logits"), pt.lvector("labels")
    loss = remote("softmax_cross_entropy")(logits, labels).sum()
    with pytest.raises(DisconnectedInputError):
        pytensor.grad(loss, labels)
    features, rois = pt.dtensor4("features"), pt.dmatrix("rois")
    with pytest.raises(DisconnectedInputError):
        pytensor.grad(remote("roi_pool")(features, rois)[0].sum(), rois)
    y, index = remote("zero_out_indexed")(pt.as_tensor(X))
    assert (y.type.shape, index.dtype) == ((3,), "int32")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_dtype_is_that_of_the_array(remote, dtype) -> None:
    x = pt.vector("x", dtype=dtype)
    y = remote("log1pexp")(x)
    h = jacobian(pytensor.grad(y.sum(), x), x, vectorize=True)
    assert [result.dtype for result in compiled([x], [y, h])(X.astype(dtype))] == [dtype, dtype]


def test_static_shapes(remote) -> None:
    logits = pt.tensor("logits", shape=(None, 3))
    loss = remote("softmax_cross_entropy")(logits, LABELS)
    assert pytensor.grad(loss.sum(), logits).type.shape in ((None, 3), (2, 3))
    x = pt.tensor("x", shape=(None, 2))
    assert remote("log1pexp")(x).type.shape == (None, 2)


def test_a_gradient_that_is_not_linear_has_a_vjp_and_says_why_it_has_no_jvp(remote) -> None:
    f, x, v = remote("clip_gradient"), pt.dvector("x"), pt.dvector("v")
    np.testing.assert_array_equal(compiled([x], pytensor.grad((3 * f(x)).sum(), x))(X), [0.5, 0.5, 0.5])
    np.testing.assert_array_equal(compiled([x], hessian(f(x).sum(), x))(X), np.zeros((3, 3)))
    with pytest.raises(pullback.Unprocessable, match="is not linear in the cotangent, so it has no jvp"):
        compiled([x, v], forward(f(x), x, v))(X, X)


def test_errors_have_the_words_of_the_service(remote) -> None:
    s, logits, labels = remote("softmax_cross_entropy"), pt.dmatrix("logits"), pt.lvector("labels")
    function = compiled([logits, labels], s(logits, labels))
    with pytest.raises(pullback.Unprocessable, match="expected 0 <= label < 3, the number of classes, got 7"):
        function(LOGITS, [7, 0])
    with pytest.raises(pullback.BadArgument, match=r"labels: shape mismatch: expected \[N\] with N = 2, got \[3\]"):
        s(LOGITS, [0, 0, 0])
    with pytest.raises(pullback.NotFound, match="log1pex"):
        remote("log1pex")(1.0)


def test_value_gradient_and_hessian_at_a_point_are_one_request(remote, count) -> None:
    f, x = remote("log1pexp"), pt.dvector("x")
    y = f(x).sum()
    function = compiled([x], [y, g := pytensor.grad(y, x), jacobian(g, x, vectorize=True)])
    assert count() == 0
    for step in range(3):
        function(X + step)
        assert count() == 1


@pytest.mark.parametrize("name", ["log1pexp2", "safe_norm", "skewed"])
def test_a_vectorized_hessian_is_at_most_two_requests(remote, count, name) -> None:
    x = pt.dvector("x")
    op = remote(name)
    y = op(x, x) if name == "skewed" else op(x).sum()
    function = compiled([x], jacobian(pytensor.grad(y, x), x, vectorize=True))
    function(X)
    assert count() <= (4 if name == "skewed" else 2)


def test_a_batch_along_a_leading_axis_is_one_request(remote, count) -> None:
    logits, many = pt.dmatrix("logits"), pt.dtensor4("many")
    loss = remote("softmax_cross_entropy")(logits, LABELS)
    vectorized = pytensor.graph.replace.vectorize_graph(loss, {logits: many})
    np.testing.assert_allclose(compiled([many], vectorized)(np.ones((3, 2, 2, 3))), np.full((3, 2, 2), np.log(3)))
    assert count() == 1


def test_a_batch_of_an_elementwise_op_is_one_request(remote, count) -> None:
    point, points = pt.dvector("point"), pt.dmatrix("points")
    a, many = pt.dmatrix("a"), pt.dtensor3("many")
    product = pytensor.graph.replace.vectorize_graph(pytensor.grad(remote("matmul")(a, X_X).sum(), a), {a: many})
    np.testing.assert_allclose(compiled([many], product)(np.ones((4, 3, 3))), np.ones((4, 3, 3)) @ X_X.T)
    assert count() <= 2  # the value too, for its shape
    y = pytensor.graph.replace.vectorize_graph(remote("log1pexp")(point), {point: points})
    function = compiled([points], [y, pytensor.grad(y.sum(), points)])
    np.testing.assert_allclose(function(np.stack([X, X + 1]))[1][0], S)
    assert count() == 1
    assert function(np.zeros((0, 3)))[1].shape == (0, 3)


def test_equal_ops_are_merged_and_survive_pickle(remote, count) -> None:
    x = pt.dvector("x")
    first, second = remote("log1pexp")(x), remote("log1pexp")(x)
    assert first.owner.op == second.owner.op
    function = compiled([x], [first + second, pytensor.grad(first.sum(), x)])
    copy = pickle.loads(pickle.dumps(function))
    count()
    for result, want in zip(copy(X), [2 * np.log1p(np.exp(X)), S], strict=True):
        np.testing.assert_allclose(result, want)
    assert count() <= 2


@pytest.mark.filterwarnings("error")
def test_the_default_linker_runs_it(remote) -> None:
    x = pt.dvector("x")
    y = remote("log1pexp")(x)
    value, gradient = pytensor.function([x], [y, pytensor.grad(y.sum(), x)])(X)
    np.testing.assert_allclose([value, gradient], [np.log1p(np.exp(X)), S])


def test_the_jax_linker_runs_it(remote) -> None:
    pytest.importorskip("jax")
    x = pt.dvector("x")
    y = remote("log1pexp")(x)
    h = jacobian(pytensor.grad(y.sum(), x), x, vectorize=True)
    value, gradient, curvature = pytensor.function([x], [y, pytensor.grad(y.sum(), x), h], mode="JAX")(X)
    np.testing.assert_allclose([value, gradient, np.diag(curvature)], [np.log1p(np.exp(X)), S, S * (1 - S)])
