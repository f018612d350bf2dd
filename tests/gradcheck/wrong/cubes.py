"""The cube, its gradient and its reference, which wrong ops change in one place."""


def cube(x):
    return x * x * x


def cube_vjp(x, dy):
    return 3 * x * x * dy


def cube_reference(x):
    return x**3
