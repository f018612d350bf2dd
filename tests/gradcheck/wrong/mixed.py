"""Mixed partial derivatives that are missing or wrong, and wrong second orders in the slot of dy."""

from typing import Any

import numpy as np
import tensorflow as tf

from ops import Input, Output, custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.making import BOTH, WIDE, elementwise, made, rows

SECOND = ("second",)
SLOT = ("second", "adjoint")
VECTOR = ("N",)


def area_unmixed(x, w, dy, ddx, ddw):
    """The mixed terms are missing from both x slots, so the Hessian is symmetric."""
    return tf.zeros_like(x), 2 * x * dy * ddw, w * w * ddx + 2 * x * w * ddw


def area_negative(x, w, dy, ddx, ddw):
    """The mixed terms have the wrong sign in both x slots."""
    return -2 * w * dy * ddw, 2 * x * dy * ddw - 2 * w * dy * ddx, w * w * ddx + 2 * x * w * ddw


def area_one_way(x, w, dy, ddx, ddw):
    """The mixed term reaches w alone."""
    return tf.zeros_like(x), 2 * x * dy * ddw + 2 * w * dy * ddx, w * w * ddx + 2 * x * w * ddw


def area_half_slot(x, w, dy, ddx, ddw):
    """The slot of dy lacks the term of w."""
    return 2 * w * dy * ddw, 2 * x * dy * ddw + 2 * w * dy * ddx, w * w * ddx


def area_swapped(x, w, dy, ddx, ddw):
    """The slots of x and w are swapped."""
    return 2 * x * dy * ddw + 2 * w * dy * ddx, 2 * w * dy * ddw, w * w * ddx + 2 * x * w * ddw


def swell_vjp(x, w, dy):
    """The gradient of x takes w for a constant."""
    e = tf.exp(x / 4)
    return dy * e * tf.sin(tf.stop_gradient(w)) / 4, dy * e * tf.cos(w)


def neighbours(x):
    """Σ x[i] x[i + 1], around the end."""
    return tf.reduce_sum(x * tf.roll(x, -1, axis=-1), axis=-1)


def neighbours_vjp(x, dy):
    return tf.expand_dims(dy, -1) * (tf.roll(x, -1, axis=-1) + tf.roll(x, 1, axis=-1))


def neighbours_after(x, dy, ddx):
    """Only one of the two neighbours has a mixed derivative."""
    after, before = tf.roll(ddx, -1, axis=-1), tf.roll(ddx, 1, axis=-1)
    return tf.expand_dims(dy, -1) * 2 * after, tf.reduce_sum(x * (after + before), axis=-1)


def product(x):
    return tf.reduce_prod(x, axis=-1)


def product_diagonal(x, dy, ddx):
    """The Hessian of a product has the diagonal 0, and here nothing else."""
    return tf.zeros_like(x), product(x) * tf.reduce_sum(ddx / x, axis=-1)


def shares_vjp(x, dy):
    p = tf.nn.softmax(x)
    return p * (dy - tf.reduce_sum(p * dy, axis=-1, keepdims=True))


def shares_vjp_vjp(x, dy, ddx):
    """The mean of dy is taken for a constant, so the derivatives between two entries are incomplete."""
    p = tf.nn.softmax(x)
    mean = tf.reduce_sum(p * dy, axis=-1, keepdims=True)
    return shares_vjp(x, ddx * (dy - mean)), p * (ddx - tf.reduce_sum(p * ddx, axis=-1, keepdims=True))


def shares_reference(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def form(x, a):
    """xᵀ A x."""
    return tf.reduce_sum(x * tf.linalg.matvec(a, x))


def form_vjp(x, a, dy):
    return dy * (tf.linalg.matvec(a, x) + tf.linalg.matvec(a, x, transpose_a=True)), dy * x[:, None] * x


def form_vjp_vjp(x, a, dy, ddx, dda):
    """The mixed terms of x and A lack the transposed half."""
    both = tf.linalg.matvec(a, ddx) + tf.linalg.matvec(a, ddx, transpose_a=True)
    of_x = dy * (both + tf.linalg.matvec(dda, x))
    of_dy = tf.reduce_sum(x * both) + tf.reduce_sum(dda * x[:, None] * x)
    return of_x, dy * ddx[:, None] * x, of_dy


def waves(x):
    return tf.sin(x), tf.cos(x)


def waves_swapped(x, dy, dz, ddx):
    """The slots of dy and dz are swapped."""
    return -ddx * (dy * tf.sin(x) + dz * tf.cos(x)), -ddx * tf.sin(x), ddx * tf.cos(x)


def tanh_vjp(x, dy):
    return dy * (1 - tf.square(tf.tanh(x)))


def tanh_squared(x, dy, ddx):
    """The x slot is quadratic in ddx."""
    t = tf.tanh(x)
    return -2 * t * (1 - t * t) * dy * ddx * ddx, (1 - t * t) * ddx


def tanh_squared_slot(x, dy, ddx):
    """The dy slot has the slope of y² in place of that of y."""
    t = tf.tanh(x)
    slope = 1 - t * t
    return -2 * t * slope * dy * ddx, 2 * t * slope * ddx


TWO: dict[str, Any] = {"names": ("x", "w")}
FORM = (Input("x", WIDE, VECTOR), Input("a", WIDE, ("N", "N")))
NEIGHBOURS = custom_gradient(neighbours, neighbours_vjp, neighbours_after)
PRODUCT = custom_gradient(product, lambda x, dy: tf.expand_dims(dy * product(x), -1) / x, product_diagonal)
WAVES = custom_gradient(waves, lambda x, dy, dz: dy * tf.cos(x) - dz * tf.sin(x), waves_swapped)
PAIR = (Output("y", WIDE), Output("z", WIDE))
QUADRATIC, FORMS = custom_gradient(tf.tanh, tanh_vjp, tanh_squared), custom_gradient(form, form_vjp, form_vjp_vjp)
SLOPE = custom_gradient(tf.tanh, tanh_vjp, tanh_squared_slot)

OPS: dict[str, Planted] = {
    **{
        words: Planted(
            elementwise(
                custom_gradient(lambda x, w: x * w * w, lambda x, w, dy: (w * w * dy, 2 * x * w * dy), f),
                lambda x, w: x * w**2,
                name=f.__name__,
                **TWO,
            ),
            checks,
        )
        for words, f, checks in (
            ("no mixed terms", area_unmixed, SECOND),
            ("mixed terms of the wrong sign", area_negative, SECOND),
            ("a mixed term that reaches one input alone", area_one_way, ("symmetry",)),
            ("a slot of dy without the second input", area_half_slot, SLOT),
            ("the slots of two inputs swapped", area_swapped, SECOND),
        )
    },
    "an input taken for a constant in the gradient": Planted(
        elementwise(
            custom_gradient(lambda x, w: tf.exp(x / 4) * tf.sin(w), swell_vjp),
            lambda x, w: np.exp(x / 4) * np.sin(w),
            **TWO,
            name="swell",
        ),
        SECOND,
    ),
    "one neighbour without a mixed derivative": Planted(
        rows(NEIGHBOURS, lambda x: np.sum(x * np.roll(x, -1, -1), -1), out=VECTOR), SECOND
    ),
    "a product with a diagonal Hessian": Planted(
        rows(PRODUCT, lambda x: np.prod(x, -1), out=VECTOR, slot={"domain": (0.5, 2.0), "poles": (0.0,)}), SECOND
    ),
    "a mean taken for a constant at second order": Planted(
        rows(custom_gradient(tf.nn.softmax, shares_vjp, shares_vjp_vjp), shares_reference, name="shares"),
        SECOND,
    ),
    "a matrix without its transpose at second order": Planted(
        made(FORMS, lambda x, a: np.asarray(x @ a @ x), FORM, outputs=(Output("y", WIDE, ()),)), SECOND
    ),
    "the slots of two outputs swapped": Planted(
        elementwise(WAVES, lambda x: (np.sin(x), np.cos(x)), outputs=PAIR), SLOT
    ),
    "a second order that is quadratic in ddx": Planted(
        elementwise(QUADRATIC, np.tanh, name="tanh_squared", dtypes=BOTH), SECOND
    ),
    "a slot of dy with another slope": Planted(elementwise(SLOPE, np.tanh, name="tanh_slope"), SLOT),
}
