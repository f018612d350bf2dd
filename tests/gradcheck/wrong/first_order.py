"""Ops that declare no second order, and whose first order is wrong."""

import numpy as np
import tensorflow as tf
from scipy import special

from ops import Attrs, Claim, Example, Input, Surrogate, custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.cubes import cube, cube_reference
from tests.gradcheck.wrong.making import WIDE, elementwise, made

FIRST = ("derivative",)
GAMMA = (Input("a", WIDE, domain=(0.5, 5.0)), Input("x", WIDE, domain=(0.1, 9.0), poles=(0.0,)))


def first_only(attrs):
    """Claim the derivative at first order, and no second one."""
    return Claim(second=None)


def of_gamma(name, factor):
    """Return the incomplete gamma function, whose derivative in a is off by a factor."""

    def vjp(a, x, dy):
        in_x = tf.exp((a - 1) * tf.math.log(x) - x - tf.math.lgamma(a))
        return factor * tf.raw_ops.IgammaGradA(a=a, x=x) * dy, in_x * dy

    function = custom_gradient(tf.math.igamma, vjp)
    return made(function, special.gammainc, GAMMA, name=name, claim=first_only, batching="elementwise")


def gamma_of_the_upper_tail(a, x, dy):
    """The derivative in a of the upper tail."""
    in_x = tf.exp((a - 1) * tf.math.log(x) - x - tf.math.lgamma(a))
    return -tf.raw_ops.IgammaGradA(a=a, x=x) * dy, in_x * dy


def without_cotangent(x, dy):
    """dy is forgotten."""
    return 3 * x * x * tf.ones_like(dy)


def clipped(x, dy):
    """Clipped, though claimed to be linear."""
    return tf.clip_by_value(3 * x * x * dy, -1.0, 1.0)


class SideAttrs(Attrs):
    """Whether the second order is declared."""

    smooth: bool = True


def sided(x, *, smooth):
    return tf.sin(x)


def sided_reference(x, *, smooth):
    return np.sin(x)


def sided_vjp(x, dy, *, smooth):
    """Wrong where no second order is declared."""
    return tf.cos(x) * dy * (1.0 if smooth else 1.01)


OPS: dict[str, Planted] = {
    "a derivative of igamma in a that is 1% too large": Planted(of_gamma("gamma_too_large", 1.01), FIRST),
    "a derivative of igamma in a that is a billionth off": Planted(of_gamma("gamma_slightly_off", 1 + 1e-9), FIRST),
    "a derivative of igamma in a of the other tail": Planted(
        made(
            custom_gradient(tf.math.igamma, gamma_of_the_upper_tail),
            special.gammainc,
            GAMMA,
            name="gamma_of_the_upper_tail",
            claim=first_only,
            batching="elementwise",
        ),
        FIRST,
    ),
    "a forgotten cotangent, and no second order": Planted(
        elementwise(custom_gradient(cube, without_cotangent), cube_reference, name="forgotten", claim=first_only),
        ("derivative", "linearity", "adjoint"),
    ),
    "clipped, and no second order": Planted(
        elementwise(custom_gradient(cube, clipped), cube_reference, name="clipped_first", claim=first_only),
        ("linearity",),
    ),
    "a wrong value, and no second order": Planted(
        elementwise(lambda x: x * x * x * (1 + 1e-9), cube_reference, name="off_by_a_constant", claim=first_only),
        ("value",),
    ),
    "wrong for the attributes without a second order": Planted(
        elementwise(
            custom_gradient(sided, sided_vjp),
            sided_reference,
            name="sided",
            attrs=SideAttrs,
            claim=lambda attrs: Claim() if attrs.smooth else Claim(second=None),
            examples=(Example("smooth", {"x": [0.5, -1.0]}),),
        ),
        FIRST,
    ),
    "another surrogate, and no second order": Planted(
        elementwise(
            custom_gradient(tf.sign, lambda x, dy: 1.99 * dy),
            np.sign,
            name="another_slope",
            claim=lambda attrs: Claim(Surrogate(lambda primals, at: (2 * primals[0],)), None),
            slot={"kinks": (0.0,)},
        ),
        FIRST,
    ),
}
