"""What ``test_all.py`` needs of JAX."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

WAYS = {"eager": lambda f: f, "jit": jax.jit}
# What a program raises in place of our errors.
WRAPPED = (jax.errors.JaxRuntimeError, ValueError)
IS_THREADED = True
softplus = jax.nn.softplus


def value_and_gradient(f: Callable[..., Any], way: Any) -> Callable[[np.ndarray], tuple[Any, Any]]:
    return _in_float64(way(jax.value_and_grad(lambda x: jnp.sum(f(x)))))


def hessian(f: Callable[..., Any], way: Any) -> Callable[[np.ndarray], Any]:
    return _in_float64(way(jax.hessian(lambda x: jnp.sum(f(x)))))


def _in_float64(run: Callable[..., Any]) -> Callable[[np.ndarray], Any]:
    def call(x: np.ndarray) -> Any:
        # Each thread has its own setting.
        with jax.enable_x64(True):
            return jax.block_until_ready(run(jnp.array(x)))

    return call
