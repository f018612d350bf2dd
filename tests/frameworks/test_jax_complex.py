"""Complex ops in JAX, whose transposes have no conjugate: each order against the same function in JAX."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pullback.jax

jax.config.update("jax_enable_x64", True)
rng = np.random.default_rng(3)


def like(x: Any) -> Any:
    """Return random numbers in NumPy: JAX may not run before all tests of JAX are imported."""
    parts = rng.normal(size=x.shape)
    return parts + 1j * rng.normal(size=x.shape) if np.iscomplexobj(x) else parts


Z, R = like(np.zeros(3, complex)), like(np.zeros(3))
CASES = {
    "cx_square": (lambda z: z * z, (Z,)),
    "cx_conj": (jnp.conj, (Z,)),
    "cx_abs2": (lambda z: jnp.real(z * jnp.conj(z)), (Z,)),
    "cx_phase": (lambda r, t: r * jnp.exp(1j * t), (R, R[::-1])),
    "cx_scale": (lambda a, z: a * z, (R, Z)),
    "cx_fft": (jnp.fft.fft, (Z,)),
    "cx_irfft": (lambda z: jnp.fft.irfft(z, 4), (Z,)),
    "cx_cubic": (lambda z: jnp.conj(z) * z * z, (Z,)),
    "cx_parts": (lambda z: z.real * z.imag + 1j * jnp.exp(z.imag), (Z,)),
    "cx_and_back": (lambda x: jnp.imag(jnp.exp(1j * x) * (x + 2j)), (R,)),
    "cx_det": (jnp.linalg.det, (like(np.zeros((2, 2), complex)),)),
    "cx_eig": (lambda x: jnp.trace(x @ x @ x) / 3 + 0j, (like(np.zeros((3, 3))),)),
    "cx_rfft": (jnp.fft.rfft, (like(np.zeros(4)),)),
    "cx_matmul": (lambda a, b: a @ b, (like(np.zeros((2, 3), complex)), like(np.zeros((3, 2), complex)))),
}


@pytest.mark.parametrize("name", CASES)
def test_every_order_is_that_of_jax(name, url) -> None:
    own, xs = CASES[name]
    remote, every = pullback.jax.remote(name, url=url), tuple(range(len(xs)))
    y, tangents = own(*xs), tuple(map(like, xs))
    weights = like(y)

    def derivatives(f: Any) -> list[Any]:
        def loss(*xs: Any) -> Any:
            y = f(*xs)
            return jnp.sum(jnp.real(weights * y) + jnp.abs(y) ** 2)

        gradient = jax.grad(loss, every)

        def along(*xs: Any) -> Any:
            return sum(jnp.sum(jnp.real(t * g)) for t, g in zip(tangents, gradient(*xs), strict=True))

        primal, pull = jax.vjp(f, *xs)
        first = [primal, *pull(weights), *jax.jvp(f, xs, tangents)]
        return [*first, *gradient(*xs), *jax.jvp(gradient, xs, tangents)[1], *jax.jit(jax.grad(along, every))(*xs)]

    for found, expected in zip(derivatives(remote), derivatives(own), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_batches(url) -> None:
    zs, remote = jnp.stack([Z, 1j * Z]), pullback.jax.remote("cx_square", url=url)
    np.testing.assert_allclose(jax.vmap(remote)(zs), zs * zs)
    np.testing.assert_allclose(jax.vmap(jax.grad(lambda z: jnp.real(remote(z)).sum()))(zs), 2 * zs)
