"""Functions of JAX as their users write them, each with one common mistake in ``NAME_mistaken``."""

from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.ode import odeint


def numbers(*shape, seed=0):
    """Return the same numbers for each call: those of other ``seed``s are others."""
    return jax.random.normal(jax.random.fold_in(jax.random.key(1), seed), shape)


def ruled(function, backward):
    """Return a function of one array with a gradient by hand."""
    found = jax.custom_vjp(function)
    found.defvjp(lambda x: (function(x), x), lambda x, dy: (backward(x, dy),))
    return found


# A perceptron, of which the mistaken one has a ReLU that looks at the sign of the incoming gradient.
def perceptron(act, params, x):
    for layer in params[:-1]:
        x = act(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


guided = ruled(jax.nn.relu, lambda x, dy: jnp.maximum(dy, 0) * (x > 0))
mlp, mlp_mistaken = partial(perceptron, jax.nn.relu), partial(perceptron, guided)


def mlp_inputs():
    sizes = (3, 8, 8, 2)
    layers = [{"w": numbers(n, m) / n**0.5, "b": 0.1 * numbers(m)} for n, m in pairwise(sizes)]
    return {"params": layers, "x": numbers(4, 3)}


# A recurrent network by scan, whose gradient of tanh has y for y².
slow_tanh = ruled(jnp.tanh, lambda x, dy: dy * (1 - jnp.tanh(x)))


def recurrent(act, w, u, h, xs):
    def step(h, x):
        h = act(w @ h + u @ x)
        return h, h.sum()

    return lax.scan(step, h, xs)


rnn, rnn_mistaken = partial(recurrent, jnp.tanh), partial(recurrent, slow_tanh)


def rnn_inputs():
    return {"w": 0.5 * numbers(3, 3), "u": numbers(3, 2), "h": numbers(3), "xs": numbers(5, 2)}


# The log of a sum of exponentials by hand, whose mistaken gradient does not divide by the sum.
def stable(x):
    top = lax.stop_gradient(x.max(-1, keepdims=True))
    return jnp.log(jnp.exp(x - top).sum(-1)) + top[..., 0]


logsumexp = ruled(stable, lambda x, dy: dy[..., None] * jax.nn.softmax(x, -1))
logsumexp_mistaken = ruled(stable, lambda x, dy: dy[..., None] * jnp.exp(x - x.max(-1, keepdims=True)))


def logsumexp_inputs():
    return numbers(3, 4)


# Attention, whose mistaken softmax is normalised over the queries in the backward pass.
def attend(softmax, q, k, v):
    return softmax(q @ k.T / q.shape[-1] ** 0.5) @ v


def softmax(x):
    return jax.nn.softmax(x, -1)


def of_softmax(axis):
    def backward(x, dy):
        y = softmax(x)
        return y * (dy - (y * dy).sum(axis, keepdims=True))

    return ruled(softmax, backward)


attention, attention_mistaken = partial(attend, of_softmax(-1)), partial(attend, of_softmax(0))


def attention_inputs():
    return {"q": numbers(4, 2), "k": numbers(3, 2), "v": numbers(3, 2, seed=1)}


# The solution of x = cos(a x) by a while loop, and the implicit function theorem.
def solved(a):
    def goes_on(state):
        x, before, count = state
        return (jnp.abs(x - before).max() > 1e-14) & (count < 200)

    start = (jnp.cos(a), jnp.zeros_like(a), 0)
    return lax.while_loop(goes_on, lambda state: (jnp.cos(a * state[0]), state[0], state[2] + 1), start)[0]


def implicit(a, dy):
    x = solved(a)
    return -dy * x * jnp.sin(a * x) / (1 + a * jnp.sin(a * x))


fixed_point = ruled(solved, implicit)
fixed_point_mistaken = ruled(solved, lambda a, dy: -dy * solved(a) * jnp.sin(a * solved(a)))


def fixed_point_inputs():
    return jnp.array([0.3, 0.55, 0.8])


# An explicit heat equation by fori_loop, whose gradient takes the stencil's boundary for periodic.
def diffused(lap, u, rate):
    return lax.fori_loop(0, 10, lambda _, u: u + rate * lap(u), u)


def laplacian(u):
    padded = jnp.pad(u, 1)
    return padded[2:] - 2 * u + padded[:-2]


periodic = ruled(laplacian, lambda u, dy: jnp.roll(dy, 1) - 2 * dy + jnp.roll(dy, -1))
heat, heat_mistaken = partial(diffused, laplacian), partial(diffused, periodic)


def heat_inputs():
    return {"u": numbers(6), "rate": 0.2}


# Cross-entropy with a mask, whose mistaken mean is over all numbers in the backward pass.
def loss(mean, logits, labels, mask):
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)[:, 0]
    return -mean(jnp.where(mask, picked, 0.0)) * mask.size / mask.sum()


def average(x):
    return jnp.mean(x)


cross_entropy = partial(loss, average)
cross_entropy_mistaken = partial(loss, ruled(average, jnp.full_like))


def cross_entropy_inputs():
    return {"logits": numbers(4, 3), "labels": jnp.array([0, 2, 1, 1]), "mask": jnp.array([True, True, False, True])}


# The solution of an ordinary differential equation, whose steps and whose adjoint end by a tolerance; one that takes a
# parameter for a constant in a part.
def pendulum(part, p):
    def slope(y, t, p):
        return jnp.stack([y[1], -p[0] * jnp.sin(y[0]) - part(p[1]) * y[1]])

    return odeint(slope, jnp.array([1.0, 0.0]), jnp.linspace(0.0, 2.0, 3), p)[-1]


ode, ode_mistaken = partial(pendulum, lambda x: x), partial(pendulum, lambda x: 0.9 * lax.stop_gradient(x) + 0.1 * x)


def ode_inputs():
    return {"p": jnp.array([1.5, 0.3])}


# A perceptron that multiplies in bfloat16; the mistaken one has a ReLU that leaks in its gradient.
def mixed_perceptron(act, w, v, x):
    x, w, v = (each.astype(jnp.bfloat16) for each in (x, w, v))
    return (act(x @ w) @ v).astype(jnp.float32)


leaking = ruled(jax.nn.relu, lambda x, dy: jnp.where(x > 0, dy, dy / 4))
mixed, mixed_mistaken = partial(mixed_perceptron, jax.nn.relu), partial(mixed_perceptron, leaking)


def mixed_inputs():
    return {"w": numbers(3, 8), "v": numbers(8, 2, seed=1), "x": numbers(4, 3, seed=2)}


# A layer with dropout by a fixed key, whose mistaken gradient drops other numbers.
def with_dropout(drop, w, x):
    return jnp.tanh(drop(x @ w)).sum(0)


def drop(x, key=0):
    return jnp.where(jax.random.bernoulli(jax.random.key(key), 0.5, x.shape), 2 * x, 0)


dropping = ruled(drop, lambda x, dy: drop(dy, key=1))
dropout, dropout_mistaken = partial(with_dropout, drop), partial(with_dropout, dropping)


def dropout_inputs():
    return {"w": numbers(3, 4), "x": numbers(4, 3, seed=1)}


# A table at knots of NumPy, which a function with jit inside looks up; the mistaken slope is too large by 1 %.
KNOTS = np.linspace(-2, 2, 5)


def looked_up(table, x, y):
    return (table(x, y) ** 2).sum()


def interpolated(x, y):
    return jnp.interp(x, KNOTS, y)


def steep(x, y, dy):
    dx, dys = jax.vjp(interpolated, x, y)[1](dy)
    return 1.01 * dx, dys


steeper = jax.custom_vjp(interpolated)
steeper.defvjp(lambda x, y: (interpolated(x, y), (x, y)), lambda xy, dy: steep(*xy, dy))
table, table_mistaken = partial(looked_up, interpolated), partial(looked_up, steeper)


def table_inputs():
    return {"x": jnp.array([0.13, -0.47, 1.71]), "y": numbers(5)}


MODELS = (
    "mlp",
    "rnn",
    "logsumexp",
    "attention",
    "fixed_point",
    "heat",
    "cross_entropy",
    "ode",
    "mixed",
    "dropout",
    "table",
)
globals().update({f"{name}_mistaken_inputs": globals()[f"{name}_inputs"] for name in MODELS})
