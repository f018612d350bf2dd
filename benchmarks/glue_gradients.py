"""The first-order gradients of the ops that are glue in graphs, by hand in NumPy: see ``op_gradients``."""

import numpy as np

from benchmarks.op_gradients import Array


def added(a: Array, b: Array, dy: Array) -> tuple[Array, Array]:
    """da = db = dy."""
    del a, b
    return dy, dy


def subtracted(a: Array, b: Array, dy: Array) -> tuple[Array, Array]:
    """da = dy, db = -dy."""
    del a, b
    return dy, -dy


def multiplied(a: Array, b: Array, dy: Array) -> tuple[Array, Array]:
    """da = b dy, db = a dy."""
    return b * dy, a * dy


def divided(a: Array, b: Array, dy: Array) -> tuple[Array, Array]:
    """da = dy / b, db = -a dy / b²."""
    return dy / b, -a * dy / b**2


def matrix_product(a: Array, b: Array, dy: Array) -> tuple[Array, Array]:
    """da = dy bᵀ, db = aᵀ dy."""
    return dy @ b.T, a.T @ dy


def matrix_vector(a: Array, x: Array, dy: Array) -> tuple[Array, Array]:
    """da = dy xᵀ, dx = aᵀ dy."""
    return np.outer(dy, x), a.T @ dy


def summed(x: Array, dy: Array) -> Array:
    """dx = dy."""
    return np.broadcast_to(dy[..., None], x.shape)


def averaged(x: Array, dy: Array) -> Array:
    """dx = dy / N."""
    return summed(x, dy) / x.shape[-1]


def joined(a: Array, b: Array, dy: Array) -> tuple[Array, Array]:
    """da and db are the parts of dy."""
    del b
    return dy[..., : a.shape[-1]], dy[..., a.shape[-1] :]


def reshaped(x: Array, dy: Array, **attrs: int) -> Array:
    """dx = dy in the shape of x."""
    del attrs
    return dy.reshape(x.shape)


def transposed(x: Array, dy: Array) -> Array:
    """dx = dyᵀ."""
    del x
    return dy.T


def cut(x: Array, dy: Array, *, begin: int, size: int) -> Array:
    """dx = dy in the part, 0 elsewhere."""
    dx = np.zeros_like(x)
    dx[..., begin : begin + size] = dy
    return dx
