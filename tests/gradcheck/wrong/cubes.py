"""The cube, its gradient and its reference, which wrong ops change in one place."""

from ops import Array, Tensor


def cube(x: Tensor) -> Tensor:
    return x * x * x


def cube_vjp(x: Tensor, dy: Tensor) -> Tensor:
    return 3 * x * x * dy


def cube_reference(x: Array) -> Array:
    return x**3
