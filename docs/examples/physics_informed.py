"""Solve u'' = -π² sin πx, u(0) = u(1) = 0, with a network whose activation is an op of a service.

The loss has u'', so its gradient needs the third derivative of the op. With a file name as the argument, the program
draws the solution (it then needs matplotlib).
"""

import sys

import jax
import jax.numpy as jnp

import pullback.jax

softplus = pullback.jax.remote("log1pexp")
x = jnp.linspace(0.0, 1.0, 33)


def u(parameters, x):
    """Return the value of the network at a number."""
    weights, shifts, heights = parameters
    return heights @ softplus(weights * x + shifts)


def loss(parameters):
    """Return how far the network is from solving the equation."""
    curvature = jax.vmap(jax.hessian(u, argnums=1), (None, 0))(parameters, x)
    ends = jnp.array([u(parameters, x[0]), u(parameters, x[-1])])
    return jnp.mean((curvature + jnp.pi**2 * jnp.sin(jnp.pi * x)) ** 2) + 10 * jnp.sum(ends**2)


def adam(parameters, steps):
    """Return the parameters after some steps of Adam."""
    mean = square = jax.tree.map(jnp.zeros_like, parameters)
    gradient_of = jax.jit(jax.grad(loss))
    for step in range(1, steps + 1):
        gradient = gradient_of(parameters)
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
        square = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g**2, square, gradient)
        rate = 0.05 * (1 - 0.99**step) ** 0.5 / (1 - 0.9**step)
        parameters = jax.tree.map(lambda p, m, s, r=rate: p - r * m / (s**0.5 + 1e-8), parameters, mean, square)
    return parameters


def draw(file, solution, found):
    """Draw the solution and what the network found."""
    from matplotlib import pyplot  # noqa: PLC0415 - only for the picture

    figure, (above, below) = pyplot.subplots(2, sharex=True, figsize=(6, 4), height_ratios=(3, 1), layout="constrained")
    above.plot(x, solution, color="#bbbbbb", linewidth=6, label="sin πx")
    above.plot(x, found, color="#c0392b", label="network")
    above.legend(frameon=False)
    below.plot(x, found - solution, color="#c0392b")
    below.set(xlabel="x", ylabel="difference")
    figure.savefig(file, dpi=100)


weights, shifts = jax.random.normal(jax.random.key(0), (2, 24))
parameters = adam((8 * weights, 4 * shifts, jnp.zeros(24)), steps=200)
solution, found = jnp.sin(jnp.pi * x), jax.vmap(u, (None, 0))(parameters, x)
print("within 0.01 of the solution:", bool((jnp.abs(found - solution) < 0.01).all()))
if len(sys.argv) > 1:
    draw(sys.argv[1], solution, found)
