"""pullback.jax: how many requests, with which credentials, until when, and in which devices' part of a mesh."""

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import pullback
import pullback.jax
from tests.frameworks.conftest import KEY, assert_no_secret, pickles

jax.config.update("jax_num_cpu_devices", 4)
X = np.array([-0.5, 0.25, 2.0], np.float32)
UNDER_JIT = (jax.errors.JaxRuntimeError, ValueError)
WAYS = pytest.mark.parametrize("way", [lambda f: f, jax.jit], ids=["eager", "jit"])
softplus = jax.nn.softplus


def layers(f: Callable[..., Any], count: int, x: jax.Array) -> jax.Array:
    for i in range(count):
        x = 0.5 * f(x) + 0.1 * i
    return x.sum()


def test_layers_in_a_scan_and_checkpoints_take_a_request_each(remote, count) -> None:
    f = remote("log1pexp")

    def chain(step: Callable[..., Any], x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda carry, _: (step(carry), None), x, length=7)[0].sum()

    for step, x in ((f, X), (jax.checkpoint(f), X + 1)):
        jax.block_until_ready(jax.jit(jax.grad(partial(chain, step)))(x))
        assert count() == 7


def test_backward_passes_take_no_request(remote, count) -> None:
    f = remote("log1pexp")
    _, pull = jax.vjp(lambda x: layers(f, 3, x), X)
    first = pull(jnp.float32(1))
    for _ in range(3):
        np.testing.assert_array_equal(pull(jnp.float32(1)), first)
    assert count() == 3
    jax.jacrev(f)(X + 1)
    jax.jacfwd(f)(X + 1)
    assert count() == 1


def test_devices_take_a_request_for_each_point(remote, count) -> None:
    """As the chains of samplers do that run in parallel."""
    f, x = remote("log1pexp"), np.arange(12, dtype=np.float32).reshape(4, 3)
    step = jax.pmap(jax.value_and_grad(lambda x: layers(f, 2, x)))
    for i in range(5):
        jax.block_until_ready(step(x + np.float32(i / 10)))
    assert count() == 4 * 2 * 5


def test_integers_take_one_request_and_slow_nothing_down(remote, count) -> None:
    f = remote("square")

    def weighted(x: jax.Array, n: jax.Array) -> jax.Array:
        return f(x) * f(n)

    y, gradient = jax.value_and_grad(weighted, allow_int=True, argnums=(0, 1))(jnp.float32(3), jnp.int32(2))
    assert (y, gradient[0]) == (36, 24)
    assert count() == 2
    with pytest.raises(pullback.Unprocessable):
        jax.jvp(remote("clip_gradient"), (X,), (X,))
    count()
    total = lambda x: f(x).sum()  # noqa: E731
    jax.jvp(jax.grad(total), (X,), (X,))
    assert count() == 1


def test_a_function_can_be_pickled(remote, count) -> None:
    f = pickle.loads(pickle.dumps(remote("scale_gradient", attrs={"scale": 0.5})))
    assert f.__name__ == "scale_gradient"
    np.testing.assert_array_equal(jax.jit(jax.grad(lambda x: f(x).sum()))(X), [0.5, 0.5, 0.5])


def test_functions_with_different_keys_send_their_own(proxy) -> None:
    one, two = (pullback.jax.remote("square", url=proxy.url, api_key=key) for key in ("one", "two"))
    both = jax.jit(jax.grad(lambda x: (one(x) + two(x)).sum()))
    np.testing.assert_allclose(both(X), 4 * X)
    assert sorted(map(str, proxy.new("Authorization"))) == ["Bearer one", "Bearer two"]
    for f, key in ((one, "one"), (two, "two"), (pickle.loads(pickle.dumps(one)), "one")):
        jax.block_until_ready(jax.jit(f)(X + 1))
        assert proxy.new("Authorization") in ([f"Bearer {key}"], [])


def test_no_secret_is_in_programs_and_pickles(secret, proxy) -> None:
    f = pullback.jax.remote("log1pexp", **secret)
    gradient = jax.jit(jax.grad(lambda x: f(x).sum()))
    jaxpr, lowered = jax.make_jaxpr(gradient)(X), gradient.lower(X)
    assert "log1pexp" in str(jaxpr)
    assert_no_secret(str(jaxpr), repr(jaxpr), jaxpr.pretty_print(source_info=True), repr(f), str(f))
    assert_no_secret(lowered.as_text(), lowered.as_text(debug_info=True), lowered.compile().as_text())
    assert_no_secret(*pickles(f))
    jax.block_until_ready(gradient(X))
    assert proxy.new("Authorization") == [f"Bearer {KEY}"]


@pytest.mark.parametrize("devices", [1, 4])
def test_a_deadline_ends_a_call_inside_jit(proxy, devices: int) -> None:
    f = pullback.jax.remote("log1pexp", url=proxy.url, deadline=1)
    step = (jax.jit if devices == 1 else jax.pmap)(jax.grad(lambda x: f(x).sum()))
    x = X if devices == 1 else np.stack([X] * 4)
    jax.block_until_ready(step(x))
    proxy.is_open.clear()
    with pytest.raises(UNDER_JIT, match=r"deadline"):
        jax.block_until_ready(step(x + 1))
    with pytest.raises((pullback.TimedOut, pullback.DeadlinePassed)):
        pullback.jax.remote("log1pexp", url=proxy.url, deadline=0.5)(X)


def test_an_error_under_jit_is_of_two_kinds(remote) -> None:
    """As docs/frameworks.md says: a program that has run before raises another error than a new one."""
    s, logits, bad = remote("softmax_cross_entropy"), np.eye(2, 3, dtype=np.float32), jnp.array([7, 0])
    new, old = jax.jit(s), jax.jit(s)
    jax.block_until_ready(old(logits, jnp.array([1, 0])))
    with pytest.raises(jax.errors.JaxRuntimeError, match="expected 0 <= label < 3"):
        jax.block_until_ready(jax.jit(lambda *a: new(*a) * 2)(logits, bad))
    with pytest.raises(ValueError, match="expected 0 <= label < 3"):
        jax.block_until_ready(old(logits, bad))


@pytest.mark.parametrize(
    ("way", "axis_type", "check_vma"),
    [
        (jax.jit, AxisType.Auto, True),
        (jax.jit, AxisType.Auto, False),
        (jax.jit, AxisType.Explicit, True),
        (lambda f: f, AxisType.Explicit, True),
    ],
    ids=["auto", "unchecked", "explicit", "eager"],
)
def test_derivatives_of_and_in_a_shard_map(remote, way, axis_type, check_vma: bool) -> None:
    mesh = jax.make_mesh((4,), ("i",), axis_types=(axis_type,))
    f, x = remote("log1pexp"), np.arange(8, dtype=np.float32) / 3

    def results(f: Callable[..., Any]) -> list[jax.Array]:
        mapped = jax.shard_map(f, in_specs=P("i"), out_specs=P("i"), check_vma=check_vma)
        total = lambda x: mapped(x).sum()  # noqa: E731
        inside = jax.shard_map(jax.vmap(jax.grad(f)), in_specs=P("i"), out_specs=P("i"), check_vma=check_vma)
        reduced = jax.shard_map(
            lambda x: jax.lax.psum(f(x).sum(), "i"), in_specs=P("i"), out_specs=P(), check_vma=check_vma
        )
        forward = lambda x: jax.jvp(mapped, (x,), (x,))[1]  # noqa: E731
        second = jax.grad(lambda x: forward(x).sum())
        of_each = (mapped, jax.grad(total), inside, reduced, jax.grad(reduced), forward, second)
        return way(lambda x: [one(x) for one in of_each])(sharded)

    with jax.set_mesh(mesh):
        sharded = jax.device_put(x, NamedSharding(mesh, P("i")))
        for ours, theirs in zip(results(f), results(softplus), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_inputs_of_a_shard_map_that_vary_and_that_do_not(remote) -> None:
    """The gradient of an input that all devices share is the sum over them."""
    mesh = jax.make_mesh((4,), ("i",), axis_types=(AxisType.Auto,))
    w, x = np.float32([1.5, -0.5]), np.arange(8, dtype=np.float32)

    def gradients(f: Callable[..., Any]) -> Any:
        mapped = jax.shard_map(f, mesh=mesh, in_specs=(P(), P("i")), out_specs=P("i"))
        return jax.jit(jax.grad(lambda w, x: mapped(w, x).sum(), argnums=(0, 1)))(w, x)

    for ours, theirs in zip(gradients(remote("squares")), gradients(lambda w, x: w**2 * x**2), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@WAYS
def test_arrays_that_their_type_shards(remote, way) -> None:
    mesh = jax.make_mesh((4,), ("i",), axis_types=(AxisType.Explicit,))
    f = remote("log1pexp")
    with jax.set_mesh(mesh):
        x = jax.device_put(np.arange(8, dtype=np.float32), NamedSharding(mesh, P("i")))
        for ours, theirs in ((f, softplus), (jax.grad(lambda x: f(x).sum()), jax.grad(lambda x: softplus(x).sum()))):
            np.testing.assert_allclose(way(ours)(x), way(theirs)(x), rtol=1e-6)


@WAYS
def test_value_gradient_and_hessian_product_of_a_composition_take_a_request_each(remote, compose, count, way) -> None:
    log1pexp, safe_norm, matvec = map(remote, ("log1pexp", "safe_norm", "matvec"))
    loss = compose(lambda a, x: log1pexp(safe_norm(matvec(a, x))))
    a, v = jnp.array([[1.0, 2.0], [0.5, -1.0]]), jnp.array([1.0, -2.0])

    def local(a: jax.Array, x: jax.Array) -> jax.Array:
        return softplus(jnp.linalg.norm(a @ x))

    def product(f: Callable[..., Any], x: jax.Array) -> jax.Array:
        return jax.jvp(jax.grad(partial(f, a)), (x,), (v,))[1]

    count()
    for x in (jnp.array([0.25, 1.0]), jnp.array([1.0, 0.5])):
        found = jax.block_until_ready(way(partial(product, loss))(x))
        # Under jit, JAX drops the value and the gradient, which nothing uses.
        assert count() == (1 if way is jax.jit else 3)
        np.testing.assert_allclose(found, product(local, x), rtol=1e-5)


@WAYS
def test_points_of_a_composition_share_requests_under_vmap(remote, compose, count, way) -> None:
    log1pexp, safe_norm, square = map(remote, ("log1pexp", "safe_norm", "square"))
    loss = compose(lambda x: log1pexp(safe_norm(square(x))))
    rows, v = jnp.linspace(0.25, 2.0, 40).reshape(20, 2), jnp.array([1.0, -2.0])

    def local(x: jax.Array) -> jax.Array:
        return softplus(jnp.linalg.norm(x**2))

    def product(f: Callable[..., Any]) -> Callable[[jax.Array], jax.Array]:
        return lambda x: jax.jvp(jax.grad(f), (x,), (v,))[1]

    count()
    for derivative in (jax.value_and_grad, product):
        found, expected = (jax.block_until_ready(way(jax.vmap(derivative(f)))(rows)) for f in (loss, local))
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5), found, expected)
        # The values, the gradients and the products of all points: never a request for each of them.
        assert count() <= 4
