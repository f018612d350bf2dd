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


@jax.jit
def other_inside(x):
    return jnp.sin(x) * (1.001 if isinstance(x, jax.core.Tracer) and not jax.config.jax_disable_jit else 1.0)


def spectrum(z):
    return jnp.abs(jnp.fft.fft(z)) ** 2, z * jnp.exp(jnp.conj(z))


def complex_rule(conjugates):
    """Return z² of complex z, whose rule is that of JAX: its cotangents are conjugates of those of PyTorch."""
    rule = jax.custom_vjp(lambda z: z * z)
    rule.defvjp(lambda z: (z * z, z), lambda z, dy: (2 * (jnp.conj(z) if conjugates else z) * dy,))
    return rule


square, with_conjugate = complex_rule(False), complex_rule(True)


def complex_inputs():
    return jnp.array([0.5 - 1j, 2 + 0.25j])


spectrum_inputs = square_inputs = with_conjugate_inputs = complex_inputs


def scaled_in(dtype):
    rule = jax.custom_vjp(jnp.tanh)
    scale = lambda x: 1.25 if x.dtype == dtype else 1  # noqa: E731
    rule.defvjp(lambda x: (jnp.tanh(x), x), lambda x, dy: (scale(x) * dy * (1 - jnp.tanh(x) ** 2),))
    return rule


in_bfloat16, wrong_in_bfloat16 = scaled_in(jnp.float16), scaled_in(jnp.bfloat16)


def in_bfloat16_inputs():
    return inputs().astype(jnp.bfloat16)


wrong_in_bfloat16_inputs = in_bfloat16_inputs


@jax.custom_vjp
def of_block(x):
    return jnp.sin(x)


of_block.defvjp(lambda x: (jnp.sin(x), x), lambda x, dy: (dy * jnp.cos(x) * (jnp.arange(x.size) < 64),))


def attended(q, k, v):
    return jax.nn.softmax(q @ k.T) @ v


def attended_inputs():
    keys = iter(jax.random.split(jax.random.key(2), 3))
    return tuple(jax.random.normal(next(keys), shape) for shape in ((4, 2), (3, 2), (3, 2)))


def gathered(x):
    return x[jnp.array([2, 0, 2])] * jnp.sort(x)


def solved(a, b):
    return jnp.linalg.solve(a @ a.T + jnp.eye(len(a)), b)


def solved_inputs():
    return jax.random.normal(jax.random.key(3), (3, 3)), inputs()


def rectified(x):
    return jax.nn.relu(x), jnp.abs(x), jnp.maximum(x, 0.1 * x)


def detached(x):
    return x * jax.lax.stop_gradient(jax.nn.sigmoid(x))


def nan_below_zero(x):
    return jnp.where(x > 0, jnp.sqrt(x), 0.0)


@jax.custom_vjp
def clipped(x):
    return jnp.sin(x)


clipped.defvjp(lambda x: (jnp.sin(x), x), lambda x, dy: (jnp.clip(dy * jnp.cos(x), -0.9, 0.9),))
