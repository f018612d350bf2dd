"""Wrong ops for a service: a number of each check is off, and a command must return it."""

from dataclasses import replace

import tensorflow as tf

from ops import Attrs, Claim, Example, Input, Op, Output, Surrogate, custom_gradient
from tests.gradcheck.op_makers import BOTH, WIDE, cube, cube_vjp, elementwise, made, rows


class Steep(Attrs):
    """A number attribute."""

    factor: float = 1.09


def cube_of(x, factor):
    return cube(x)


def steep_vjp(x, dy, factor):
    return factor * cube_vjp(x, dy)


def matvec(x, w):
    return tf.linalg.matvec(x * x, w)


def reversed_rows(x, w, dy):
    return 2 * tf.reverse(x, [1]) * w * dy[:, None], tf.linalg.matvec(x * x, dy, transpose_a=True)


def asymmetric(x, w, dy, ddx, ddw):
    of_x = 2 * dy[:, None] * w * ddx
    return of_x, tf.linalg.matvec(2 * x * ddx, dy, transpose_a=True), tf.linalg.matvec(2 * x * ddx, w)


def matvec_vjp(x, w, dy):
    return 2 * x * dy[:, None] * w, tf.linalg.matvec(x * x, dy, transpose_a=True)


def pairs(x, z):
    return x * x * z


def pairs_vjp(x, z, dy):
    return 2 * x * z * dy, x * x * dy


def pairs_second(x, z, dy, ddx, ddz):
    return 2 * z * dy * ddx, 2 * x * dy * ddx, 2 * x * z * ddx + x * x * ddz


def second_half(x, dy, ddx):
    return 3 * x * dy * ddx, 3 * x * x * ddx


def second_slot(x, dy, ddx):
    return 6 * x * dy * ddx, 6 * x * x * ddx


def clipped(x, dy):
    return tf.clip_by_value(cube_vjp(x, dy), -1.0, 1.0)


def dy_squared(x, dy):
    return cube_vjp(x, dy * dy)


def by_mode(x, dy):
    return cube_vjp(x, dy) * (1.0 if tf.executing_eagerly() else 1.001)


def by_dtype(x, dy):
    return cube_vjp(x, dy) * (1.001 if x.dtype == tf.float32 else 1.0)


def noisy(x, dy):
    return cube_vjp(x, dy) + 1e-13 * tf.random.normal(tf.shape(x), dtype=x.dtype)


def of_its_batch(x):
    return x / (1e-3 * tf.reduce_max(tf.abs(x)) + 1)


def line(primals, at):
    return (primals[0],)


def product(x, dx):
    return x * dx, 2 * x * dx


def product_vjp(x, dx, dy, dz):
    return dx * dy + 2 * dx * dz, 1.5 * (x * dy + 2 * x * dz)


def root(x):
    return tf.sqrt(x * x * x * x)


def masked(x, keep):
    return tf.where(keep, cube(x), 0)


def masked_vjp(x, keep, dy):
    return tf.where(keep, 1.5 * cube_vjp(x, dy), 0), None


MATVEC = {"examples": (Example("one", {"x": [[1.0, -2.0], [0.5, 3.0]], "w": [1.5, -0.75]}),)}
OPS: dict[str, Op] = {
    "steep": elementwise(custom_gradient(cube_of, steep_vjp), attrs=Steep),
    "many_rows": rows(custom_gradient(matvec, reversed_rows), **MATVEC),
    "asymmetric": rows(custom_gradient(matvec, matvec_vjp, asymmetric), **MATVEC),
    "asymmetric_pairs": elementwise(
        custom_gradient(pairs, pairs_vjp, pairs_second),
        inputs=(Input("x", WIDE), Input("z", WIDE)),
        examples=(Example("two", {"x": [1.0, 2.0], "z": [0.5, 3.0]}),),
    ),
    "second_half": made(second=second_half),
    "second_slot": made(second=second_slot),
    "clipped": made(clipped),
    "dy_squared": made(dy_squared),
    "by_mode": made(by_mode, dtypes=BOTH),
    "by_dtype": made(by_dtype, dtypes=BOTH),
    "noisy": made(noisy),
    "of_its_batch": elementwise(of_its_batch),
    "not_that_line": made(claim=lambda attrs: Claim(Surrogate(line))),
    "nan_at_0": elementwise(root),
    "ambiguous": elementwise(
        custom_gradient(product, product_vjp),
        inputs=(Input("x", WIDE), Input("dy", WIDE)),
        outputs=(Output("y", WIDE), Output("z", WIDE)),
        examples=(Example("two", {"x": [1.0, 2.0], "dy": [0.5, 3.0]}),),
    ),
    "masked": elementwise(
        custom_gradient(masked, masked_vjp),
        inputs=(Input("x", WIDE), Input("keep", ("bool",), differentiable=False)),
        examples=(Example("two", {"x": [1.0, 2.0], "keep": [True, False]}),),
    ),
}
OPS = {name: replace(op, name=name) for name, op in OPS.items()}
