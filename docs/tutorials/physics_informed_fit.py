# ---
# jupyter:
#   jupytext:
#     formats: py:percent,ipynb
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A physics-informed fit
#
# A cup of tea cools. We have eight noisy temperatures, know the law $u' = -k\,(u - u_0)$ and the temperature $u_0$ of
# the room, but not the rate $k$. A network $u(t)$ is fitted to the measurements and to the law together, and $k$ with
# it. The activation of the network is the op `log1pexp` of a service, so the law needs its first derivative, and the
# fit the derivative of that. You need a service and two packages:
#
#     pullback serve
#     pip install ".[jax]" matplotlib

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from jax.flatten_util import ravel_pytree

import pullback.jax

jax.config.update("jax_enable_x64", True)
# The service is that of PULLBACK_URL, by default http://127.0.0.1:8000.
softplus = pullback.jax.remote("log1pexp")

RATE, ROOM, START = 0.7, 20.0, 90.0


def exact(t):
    return ROOM + (START - ROOM) * np.exp(-RATE * t)


times = np.linspace(0, 4, 8)
measured = exact(times) + np.random.default_rng(0).normal(0, 1.0, 8)

# %% [markdown]
# The network has twelve neurons. Temperatures are divided by 70, so that all its numbers are near 1.

# %%
# Where the law must hold, also after the last measurement.
law = jnp.linspace(0, 5, 41)


def u(weights, t):
    inner, shifts, heights, level = weights
    return level + heights @ softplus(inner * t + shifts)


def residuals(unknown):
    weights, rate = unknown
    value, slope = jax.vmap(jax.value_and_grad(u, argnums=1), (None, 0))(
        weights, law
    )
    physics = slope + rate * (value - ROOM / 70)
    data = jax.vmap(u, (None, 0))(weights, times) - measured / 70
    return jnp.concatenate([physics, 3 * data])


# %% [markdown]
# Levenberg-Marquardt needs the Jacobian of all residuals, which JAX gets by differentiating through the service:

# %%
weights = (*jax.random.normal(jax.random.key(0), (3, 12)), jnp.array(0.5))
flat, restore = ravel_pytree((weights, jnp.array(0.0)))
value = jax.jit(lambda flat: residuals(restore(flat)))
jacobian = jax.jit(jax.jacrev(lambda flat: residuals(restore(flat))))

damping, r, losses = 1e-2, value(flat), []
for _ in range(40):
    j = jacobian(flat)
    step = jnp.linalg.solve(j.T @ j + damping * jnp.eye(len(flat)), -j.T @ r)
    trial = value(flat + step)
    if trial @ trial < r @ r:
        flat, r, damping = flat + step, trial, max(damping / 3, 1e-9)
    else:
        damping *= 4
    losses.append(float(r @ r))

weights, rate = restore(flat)
found = 70 * jax.vmap(u, (None, 0))(weights, law)
print(f"rate found {float(rate):.3f}, true {RATE}")
print(
    f"largest error of the temperature: {float(jnp.abs(found - exact(law)).max()):.2f} degrees"
)
assert abs(rate - RATE) < 0.05

# %% alt="Left: the temperature that the network found lies on the exact curve, from 90 to 22 degrees, and passes between the eight measurements. Right: the sum of squares falls by orders of magnitude in forty steps."
figure, (left, right) = plt.subplots(
    1, 2, figsize=(8, 3), layout="constrained", width_ratios=(3, 2)
)
left.plot(law, exact(law), color="#bbbbbb", linewidth=6, label="exact")
left.plot(law, found, label="network")
left.plot(times, measured, "k.", label="measured")
left.set(xlabel="time", ylabel="temperature")
left.legend(frameon=False)
right.semilogy(losses)
right.set(xlabel="step", title="sum of squares")
plt.show()

# %% [markdown]
# [Remote ops in frameworks](../frameworks.md#jax) has another: a differential equation of second order, with Adam.
