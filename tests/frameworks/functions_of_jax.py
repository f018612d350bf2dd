"""Functions of JAX, right and wrong, as their users write them."""

import jax
import jax.numpy as jnp


def inputs():
    return jnp.array([0.3, -1.2, 2.0])


def network(params, x):
    for w, b in params:
        x = jax.nn.relu(x @ w + b)
    return jax.nn.log_softmax(x)


def network_inputs():
    keys = iter(jax.random.split(jax.random.key(0), 5))
    layers = [(jax.random.normal(next(keys), (n, m)), jax.random.normal(next(keys), (m,))) for n, m in ((4, 5), (5, 3))]
    return {"params": layers, "x": jax.random.normal(next(keys), (2, 4))}


def scanned(x):
    return jax.lax.scan(lambda carry, each: (carry * each + 1, carry), 1.0 * x[0], x)


def power(x, n):
    return x**n


def power_inputs():
    return inputs(), 3


def untraceable(x):
    return 2 * x if x[0] > -1000 else 3 * x


@jax.custom_vjp
def with_rule(x):
    return jnp.sin(x)


with_rule.defvjp(lambda x: (jnp.sin(x), x), lambda x, dy: (dy * jnp.cos(x),))


@jax.custom_vjp
def wrong_rule(x):
    return jnp.sin(x)


wrong_rule.defvjp(lambda x: (jnp.sin(x), x), lambda x, dy: (1.001 * dy * jnp.cos(x),))


@jax.custom_jvp
def wrong_tangent(x):
    return jnp.sin(x)


wrong_tangent.defjvp(lambda xs, ts: (jnp.sin(xs[0]), 1.001 * ts[0] * jnp.cos(xs[0])))


@jax.custom_vjp
def halved(x):
    return jnp.sin(x)


halved.defvjp(lambda x: (jnp.sin(x), x), lambda x, dy: ((dy * jnp.cos(x.astype(jnp.float16))).astype(x.dtype),))


def looped(x):
    return jax.lax.while_loop(lambda y: jnp.sum(jnp.abs(y)) < 100, lambda y: 2 * y + 1, x)


def other_when_compiled(x):
    return jnp.sin(x) * (1.001 if isinstance(x, jax.core.Tracer) else 1.0)
