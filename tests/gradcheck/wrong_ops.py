"""Wrong ops for a service: a number of each check is off, and a command must return it."""

from dataclasses import replace

import tensorflow as tf

from ops import Attrs, Claim, Example, Input, Op, Output, Surrogate, custom_gradient
from tests.gradcheck.op_makers import BOTH, WIDE, cube, cube_vjp, elementwise, made, rows


class Steep(Attrs):
    """A number attribute."""

    factor: float = 1.09


def matvec(x, w):
    return tf.linalg.matvec(x * x, w)


def reversed_rows(x, w, dy):
    return 2 * tf.reverse(x, [1]) * w * dy[:, None], tf.linalg.matvec(x * x, dy, transpose_a=True)


def asymmetric(x, w, dy, ddx, ddw):
    of_x = 2 * dy[:, None] * w * ddx
    return of_x, tf.linalg.matvec(2 * x * ddx, dy, transpose_a=True), tf.linalg.matvec(2 * x * ddx, w)


def matvec_vjp(x, w, dy):
    return 2 * x * dy[:, None] * w, tf.linalg.matvec(x * x, dy, transpose_a=True)


def pairs_second(x, z, dy, ddx, ddz):
    return 2 * z * dy * ddx, 2 * x * dy * ddx, 2 * x * z * ddx + x * x * ddz


MATVEC = {"examples": (Example("one", {"x": [[1.0, -2.0], [0.5, 3.0]], "w": [1.5, -0.75]}),)}
OPS: dict[str, Op] = {
    "steep": elementwise(
        custom_gradient(lambda x, factor: cube(x), lambda x, dy, factor: factor * cube_vjp(x, dy)), attrs=Steep
    ),
    "many_rows": rows(custom_gradient(matvec, reversed_rows), **MATVEC),
    "asymmetric": rows(custom_gradient(matvec, matvec_vjp, asymmetric), **MATVEC),
    "asymmetric_pairs": elementwise(
        custom_gradient(lambda x, z: x * x * z, lambda x, z, dy: (2 * x * z * dy, x * x * dy), pairs_second),
        inputs=(Input("x", WIDE), Input("z", WIDE)),
        examples=(Example("two", {"x": [1.0, 2.0], "z": [0.5, 3.0]}),),
    ),
    "second_half": made(second=lambda x, dy, ddx: (3 * x * dy * ddx, 3 * x * x * ddx)),
    "second_slot": made(second=lambda x, dy, ddx: (6 * x * dy * ddx, 6 * x * x * ddx)),
    "clipped": made(lambda x, dy: tf.clip_by_value(cube_vjp(x, dy), -1.0, 1.0)),
    "dy_squared": made(lambda x, dy: cube_vjp(x, dy * dy)),
    "by_mode": made(lambda x, dy: cube_vjp(x, dy) * (1.0 if tf.executing_eagerly() else 1.001), dtypes=BOTH),
    "by_dtype": made(lambda x, dy: cube_vjp(x, dy) * (1.001 if x.dtype == tf.float32 else 1.0), dtypes=BOTH),
    "noisy": made(lambda x, dy: cube_vjp(x, dy) + 1e-13 * tf.random.normal(tf.shape(x), dtype=x.dtype)),
    "of_its_batch": elementwise(lambda x: x / (1e-3 * tf.reduce_max(tf.abs(x)) + 1)),
    "not_that_line": made(claim=lambda attrs: Claim(Surrogate(lambda primals, at: (primals[0],)))),
    "nan_at_0": elementwise(lambda x: tf.sqrt(x * x * x * x)),
    "ambiguous": elementwise(
        custom_gradient(
            lambda x, dx: (x * dx, 2 * x * dx),
            lambda x, dx, dy, dz: (dx * dy + 2 * dx * dz, 1.5 * (x * dy + 2 * x * dz)),
        ),
        inputs=(Input("x", WIDE), Input("dy", WIDE)),
        outputs=(Output("y", WIDE), Output("z", WIDE)),
        examples=(Example("two", {"x": [1.0, 2.0], "dy": [0.5, 3.0]}),),
    ),
    "masked": elementwise(
        custom_gradient(
            lambda x, keep: tf.where(keep, cube(x), 0),
            lambda x, keep, dy: (tf.where(keep, 1.5 * cube_vjp(x, dy), 0), None),
        ),
        inputs=(Input("x", WIDE), Input("keep", ("bool",), differentiable=False)),
        examples=(Example("two", {"x": [1.0, 2.0], "keep": [True, False]}),),
    ),
}
OPS = {name: replace(op, name=name) for name, op in OPS.items()}
