"""pullback.jax: JAX's own proofs of derivatives, its transformations, and how many requests they take."""

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import pullback
import pullback.jax

LOGITS, LABELS = np.array([[1.0, -0.5, 2.0], [0.25, 0.0, -3.0]]), np.array([2, 0], np.int32)
SYMMETRIC = np.array([[2.0, 1.0, 0.0], [1.0, 3.0, -1.0], [0.0, -1.0, 5.0]])
FEATURES, ROIS = np.arange(32.0).reshape(1, 4, 4, 2), np.array([[0.0, 0, 0, 3, 3], [0, 1, 1, 2, 3]])
MATRICES = np.arange(12.0).reshape(3, 2, 2) / 7
MODES = [jax.jacfwd, jax.jacrev]


# Not ``jax.enable_x64``, which holds in one thread: where XLA calls back from another, JAX itself casts the results.
jax.config.update("jax_enable_x64", True)


def softplus(x: jax.Array) -> jax.Array:
    return jnp.logaddexp(0.0, x)


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, labels[:, None], -1)[:, 0]


@pytest.mark.parametrize(
    ("name", "attrs", "arrays", "constants"),
    [
        ("log1pexp", None, [[-0.5, 0.25, 2.0]], []),
        ("squares", None, [[0.5, 2.0], [-1.0, 3.0]], []),
        ("safe_norm", None, [[3.0, -1.0, 0.5]], []),
        ("softmax_cross_entropy", None, [LOGITS], [LABELS]),
        ("self_adjoint_eig", None, [SYMMETRIC], []),
        ("zero_out_indexed", None, [[5.0, 4.0, 3.0]], []),
        ("roi_pool", {"pooled_height": 2, "pooled_width": 1}, [FEATURES], [ROIS]),
    ],
)
def test_check_grads_to_second_order(remote, name: str, attrs: Any, arrays: Any, constants: Any) -> None:
    dtype = np.float32 if name == "zero_out_indexed" else np.float64
    op = remote(name, attrs=attrs)

    def f(*xs: jax.Array) -> Any:
        outputs = op(*xs, *constants)
        # check_grads is for floats alone.
        return [y for y in outputs if y.dtype == dtype] if isinstance(outputs, tuple) else outputs

    tolerance = 1e-2 if dtype == np.float32 else 1e-5
    check_grads(jax.jit(f), [np.array(x, dtype) for x in arrays], order=2, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("outer", MODES)
@pytest.mark.parametrize("inner", MODES)
def test_hessians_in_all_orders_of_modes(remote, outer: Any, inner: Any) -> None:
    def both(f: Callable[..., Any], s: Callable[..., Any]) -> Callable[[jax.Array], jax.Array]:
        return lambda x: jnp.stack([*f(x), f(x).sum(), s(jnp.stack([x, 2 * x]), LABELS).sum()])

    ours, theirs = both(remote("log1pexp"), remote("softmax_cross_entropy")), both(softplus, cross_entropy)
    x = jnp.array([-0.5, 0.25, 2.0])
    np.testing.assert_allclose(jax.jit(outer(inner(ours)))(x), jax.jit(jax.hessian(theirs))(x), atol=1e-7)


def test_check_grads_without_jit(remote) -> None:
    check_grads(remote("log1pexp"), (np.array([-0.5, 0.25, 2.0]),), order=2)


def test_third_and_fourth_order(remote) -> None:
    f, x = remote("log1pexp"), jnp.array([0.5, -1.0])
    third = jax.grad(lambda x: jax.hessian(lambda x: f(x).sum())(x).sum())
    want = jax.grad(lambda x: jax.hessian(lambda x: softplus(x).sum())(x).sum())
    np.testing.assert_allclose(jax.jit(third)(x), want(x), atol=1e-7)
    np.testing.assert_allclose(jax.jacfwd(third)(x), jax.jacfwd(want)(x), atol=1e-6)


def test_the_second_order_that_the_author_declared_arrives_in_all_modes(remote) -> None:
    f, x = remote("log1pexp2"), jnp.array([1.0, 0.5])
    for outer in MODES:
        np.testing.assert_allclose(outer(jax.grad(lambda x: f(x).sum()))(x), jnp.diag(1 - jnp.exp(x)), rtol=1e-12)


def test_a_second_order_that_is_not_symmetric_keeps_its_sides(remote) -> None:
    """Row i of the Hessian has the derivatives of the gradient's entry i: H[0] = [0 1; 2 3], not its transpose."""
    f, z = remote("skewed"), jnp.array([4.0, 5.0])
    x, m = jnp.array([1.0, 2.0]), np.array([[0.0, 1.0], [2.0, 3.0]])
    v = jnp.array([1.0, 10.0])
    for outer in MODES:
        h = outer(jax.grad(f, argnums=(0, 1)), argnums=(0, 1))(x, z)
        np.testing.assert_allclose(h[0][0], m)
        np.testing.assert_allclose([h[0][1], h[1][0]], [3 * np.eye(2), 5 * np.eye(2)])
    np.testing.assert_allclose(jax.jvp(lambda x: jax.grad(f)(x, z), (x,), (v,))[1], m @ v)
    np.testing.assert_allclose(jax.grad(lambda x: jax.grad(f)(x, z) @ v)(x), m.T @ v)


def test_vmap_of_points_directions_and_both(remote) -> None:
    for name, ours, theirs, arrays in [
        ("elementwise", remote("log1pexp"), softplus, [np.array([[-0.5, 0.25], [2.0, 1.0], [0.0, 3.0]])]),
        ("leading axis", remote("softmax_cross_entropy"), cross_entropy, [LOGITS * np.ones((3, 1, 1)), LABELS]),
        ("leading axes", remote("safe_norm"), jnp.linalg.norm, [np.array([[-0.5, 0.25], [2.0, 1.0], [1.0, 3.0]])]),
        ("none", remote("matmul"), jnp.matmul, [MATRICES, MATRICES[0]]),
    ]:
        axes, xs = [0, *(None for _ in arrays[1:])], list(map(jnp.array, arrays))
        first = jax.jacrev(lambda *a, f=ours: jnp.sum(f(*a)))
        want = jax.jacrev(lambda *a, f=theirs: jnp.sum(f(*a)))
        for f, g in [(ours, theirs), (jax.jacfwd(first), jax.jacfwd(want))]:
            got = jax.jit(jax.vmap(f, axes))(*xs)
            np.testing.assert_allclose(got, jax.vmap(g, axes)(*xs), atol=1e-7, err_msg=name)
    nested = jax.vmap(jax.vmap(remote("log1pexp")), 1)(jnp.array([[0.5, 1.0]]))
    np.testing.assert_allclose(nested, softplus(jnp.array([[0.5], [1.0]])))


def test_derivatives_of_points_and_of_points_of_points(remote) -> None:
    product, a = remote("matmul"), jnp.array(MATRICES)

    def loss(f: Any, a: Any) -> Any:
        return (jax.vmap(lambda a: f(jnp.sin(a), a.T))(a) ** 3).sum()

    for way in (jax.grad, jax.hessian, lambda f: jax.vmap(jax.grad(f)), lambda f: jax.grad(lambda a: f(a[0]))):
        given = jnp.stack([a, a + 1]) if way not in (jax.grad, jax.hessian) else a
        found, want = (jax.jit(way(partial(loss, f)))(given) for f in (product, jnp.matmul))
        np.testing.assert_allclose(found, want, atol=1e-9)
    inner = lambda f: lambda a: (jax.vmap(jax.jacrev(lambda a: f(a, a)))(a) ** 2).sum()  # noqa: E731
    np.testing.assert_allclose(jax.grad(inner(product))(a), jax.grad(inner(jnp.matmul))(a))
    assert jax.vmap(product)(a[:0], a[:0]).shape == (0, 2, 2)


def test_scan_remat_and_control_flow(remote) -> None:
    f, x = remote("log1pexp"), jnp.array([0.5, -1.0])

    def chain(step: Callable[[jax.Array], jax.Array], x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda carry, _: (step(carry), None), x, length=3)[0].sum()

    want = jax.hessian(partial(chain, softplus))(x)
    np.testing.assert_allclose(jax.hessian(partial(chain, f))(x), want, atol=1e-7)
    np.testing.assert_allclose(jax.jit(jax.hessian(partial(chain, jax.checkpoint(f))))(x), want, atol=1e-7)
    choose = jax.jit(jax.grad(lambda x: jax.lax.cond(x.sum() > 0, f, jnp.sin, x).sum()))
    np.testing.assert_allclose(choose(-jnp.abs(x)), jnp.cos(-jnp.abs(x)))
    np.testing.assert_allclose(jax.linearize(f, x)[1](x), jax.linearize(softplus, x)[1](x), atol=1e-7)
    np.testing.assert_allclose(
        jax.linear_transpose(partial(jax.vjp(f, x)[1]), x)(  # the transpose of a vjp is the jvp
            (x,)
        )[0],
        jax.jvp(softplus, (x,), (x,))[1],
        atol=1e-7,
    )


def test_integers_have_float0_and_inputs_that_are_not_differentiable_zero(remote) -> None:
    s = remote("softmax_cross_entropy")
    by_label = jax.grad(lambda logits, labels: s(logits, labels).sum(), argnums=1, allow_int=True)
    assert by_label(jnp.array(LOGITS), jnp.array(LABELS)).dtype == jax.dtypes.float0
    y, index = jax.jvp(remote("zero_out_indexed"), (jnp.float32([5, 4]),), (jnp.float32([1, 1]),))[1]
    np.testing.assert_array_equal(y, [1, 0])
    assert index.dtype == jax.dtypes.float0
    pool = remote("roi_pool")
    by_roi = jax.grad(lambda x, rois: pool(x, rois)[0].sum(), argnums=1)(jnp.array(FEATURES), jnp.array(ROIS))
    np.testing.assert_array_equal(by_roi, np.zeros_like(ROIS))
    assert remote("square")(jnp.array([3, 4], jnp.int32)).dtype == np.int32


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64])
def test_the_dtype_is_that_of_the_array(remote, dtype: Any) -> None:
    f, x = remote("log1pexp"), jnp.array([0.5, 1.0], dtype)
    y, gradient = jax.jit(lambda x: jax.vjp(f, x))(x)[0], jax.jit(jax.grad(lambda x: f(x).sum()))(x)
    assert y.dtype == gradient.dtype == jax.hessian(lambda x: f(x).sum())(x).dtype == dtype


def test_without_x64_everything_is_float32(remote) -> None:
    with jax.enable_x64(False):
        f, x = remote("log1pexp"), jnp.array([0.5, 1.0])
        assert f(x).dtype == jax.grad(lambda x: f(x).sum())(x).dtype == f(0.5).dtype == np.float32


def test_a_program_has_the_dtypes_of_its_trace_in_any_thread(remote) -> None:
    with jax.enable_x64(False):
        x = jnp.array([0.5, 1.0])
        compiled = jax.jit(remote("cast_float64")).lower(x).compile()
    with ThreadPoolExecutor(1) as pool:
        y = pool.submit(compiled, x).result()
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y, x)


def test_a_gradient_that_is_not_linear_has_a_vjp_and_says_why_it_has_no_jvp(remote) -> None:
    f, x = remote("clip_gradient"), jnp.array([0.5, 1.0])
    np.testing.assert_array_equal(jax.grad(lambda x: (3 * f(x)).sum())(x), [0.5, 0.5])
    np.testing.assert_array_equal(jax.jit(jax.hessian(lambda x: f(x).sum()))(x), np.zeros((2, 2)))
    with pytest.raises(pullback.Unprocessable, match="is not linear in the cotangent, so it has no jvp"):
        jax.jvp(f, (x,), (x,))


def test_errors_have_the_words_of_the_service(remote) -> None:
    s, bad = remote("softmax_cross_entropy"), jnp.array([7, 0])
    with pytest.raises(pullback.Unprocessable, match="expected 0 <= label < 3, the number of classes, got 7"):
        s(LOGITS, bad)
    with pytest.raises(jax.errors.JaxRuntimeError, match="expected 0 <= label < 3, the number of classes, got 7"):
        jax.block_until_ready(jax.jit(s)(LOGITS, bad))
    with pytest.raises(pullback.BadArgument, match=r"labels: shape mismatch: expected \[N\] with N = 2, got \[3\]"):
        jax.jit(s)(LOGITS, jnp.zeros(3, jnp.int32))
    with pytest.raises(pullback.NotFound, match="log1pex"):
        remote("log1pex")(1.0)


def test_value_gradient_and_hvp_at_a_point_are_one_request(remote, count) -> None:
    f = remote("log1pexp")

    def everything(x: jax.Array, v: jax.Array) -> Any:
        total = lambda x: f(x).sum()  # noqa: E731
        return jax.value_and_grad(total)(x), jax.jvp(jax.grad(total), (x,), (v,))[1]

    for step, run in enumerate([everything, jax.jit(everything)]):
        x = jnp.array([-0.5, 0.25, 2.0]) + step
        (y, gradient), hvp = jax.block_until_ready(run(x, jnp.ones(3)))
        s = jax.nn.sigmoid(x)
        np.testing.assert_allclose(y, softplus(x).sum())
        np.testing.assert_allclose([*gradient, *hvp], [*s, *s * (1 - s)], rtol=1e-12)
        assert count() == 1


def test_a_hessian_is_at_most_two_requests(remote, count) -> None:
    x = jnp.array([-0.5, 0.25, 2.0])
    for step, name in enumerate(["log1pexp", "log1pexp2", "safe_norm", "self_adjoint_eig", "skewed"]):
        op = remote(name)
        at = {"self_adjoint_eig": (jnp.array(SYMMETRIC) + step,), "skewed": (x, x)}.get(name, (x + step,))
        total = lambda *a, op=op: jnp.sum(jnp.stack([y.sum() for y in jax.tree.leaves(op(*a))]))  # noqa: E731
        for hessian in (jax.jit(jax.hessian(total)), jax.jit(jax.jacrev(jax.grad(total)))):
            count()
            jax.block_until_ready(hessian(*at))
            assert count() <= 2, name
    f = remote("log1pexp")
    jax.block_until_ready(jax.hessian(lambda x: f(x).sum())(x))
    assert count() <= 2


def test_vmaps_are_one_request(remote, count) -> None:
    x, s = jnp.array(LOGITS), remote("softmax_cross_entropy")
    pull = jax.jit(lambda d: jax.vmap(jax.vjp(lambda x: s(x, LABELS), x)[1])(d)[0])
    count()
    assert jax.block_until_ready(pull(jnp.eye(2))).shape == (2, 2, 3)
    assert count() == 1
    jax.block_until_ready(jax.jit(jax.vmap(s, (0, None)))(jnp.stack([x, x, x]), LABELS))
    assert count() == 1
    for f, most in ((jax.vmap(remote("matmul")), 1), (jax.vmap(jax.jacrev(remote("matmul"))), 2)):
        jax.block_until_ready(jax.jit(f)(jnp.array(MATRICES), jnp.array(MATRICES)))
        assert count() <= most


def test_equal_functions_share_a_compilation(remote) -> None:
    lowered = [jax.jit(remote("log1pexp")).trace(jnp.ones(2)).jaxpr.eqns[0].params["p"] for _ in range(2)]
    assert lowered[0] == lowered[1] == pickle.loads(pickle.dumps(lowered[0]))
