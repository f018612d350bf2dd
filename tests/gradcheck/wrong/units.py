"""Faults in SI units and in tails, where all numbers are far smaller or larger than 1."""

import numpy as np
import tensorflow as tf
from scipy import special

from ops import Claim, Formula, custom_gradient
from tests.gradcheck.planting import Planted
from tests.gradcheck.wrong.making import BOTH, WIDE, elementwise, rows

FIRST, SECOND = ("derivative",), ("second",)
PLANCK, THERMAL, CHARGE, COULOMB = 6.62607015e-34, 0.02585, 1.602176634e-19, 8.9875517923e9
TINY = 1e-20


def cube(x):
    return TINY * x**3


def doubled(x, dy):
    """The slope is twice too large."""
    return 6 * TINY * x**2 * dy


def cube_vjp(x, dy):
    return 3 * TINY * x**2 * dy


def doubled_second(x, dy, ddx):
    return 12 * TINY * x * dy * ddx, 3 * TINY * x**2 * ddx


def doubled_slot(x, dy, ddx):
    """The slot of dy is twice too large."""
    return 6 * TINY * x * dy * ddx, 6 * TINY * x**2 * ddx


def cube_reference(x):
    return TINY * x**3


def cut_decay(x, dy):
    """0 where e^-x is under the rounding of 1."""
    return tf.where(x < 38, -tf.exp(-x) * dy, tf.zeros_like(x))


def spectrum(x):
    """Planck's law, in units of kT."""
    return x**3 / tf.math.expm1(x)


def cut_spectrum(x, dy):
    """0 in Wien's tail."""
    e = tf.math.expm1(x)
    slope = (3 * x**2 - x**3 * (1 + 1 / e)) / e
    return tf.where(x < 36, slope * dy, tf.zeros_like(x))


def energy_vjp(x, dy):
    """Planck's constant has two digits."""
    return 6.6e-34 * dy + 0 * x


def diode_vjp(x, dy):
    """The thermal voltage of another temperature."""
    return 1e-12 / 0.026 * tf.exp(x / THERMAL) * dy


def attraction(x):
    """Coulomb's constant has four digits."""
    return 8.988e9 * CHARGE**2 / (x * x)


def clipped(x, dy):
    return tf.clip_by_value(2 * TINY * x * dy, -TINY, TINY)


def shifted(x):
    """The first number of the batch enters all others."""
    return TINY * (x + 1e-3 * tf.reshape(x, [-1])[0])


def eager_half(x):
    """In eager mode, half as large."""
    return (0.5 if tf.executing_eagerly() else 1.0) * TINY * tf.sin(x)


def single_area(x, dy):
    """In float32, 1 % too large."""
    return (1.01 if x.dtype == tf.float32 else 1.0) * 2 * TINY * x * dy


def prism(x, w):
    return TINY * x * x * w


def prism_vjp(x, w, dy):
    return 2 * TINY * x * w * dy, TINY * x * x * dy


def prism_unmixed(x, w, dy, ddx, ddw):
    """The mixed term does not reach w."""
    of_x = 2 * TINY * (w * ddx + x * ddw) * dy
    return of_x, tf.zeros_like(w), 2 * TINY * x * w * ddx + TINY * x * x * ddw


def prism_reference(x, w):
    return TINY * x**2 * w


def square_claim(attrs):
    return Claim(Formula(lambda xs, dys: [2 * TINY * xs[0] * dys[0]]), Formula(lambda xs, dys, vs: [0 * xs[0]]))


def straight(x, dy):
    """The gradient is 1 % off the formula that it claims."""
    return 2.02 * TINY * x * dy


def complement_vjp(x, dy):
    """0 where the complement is under the rounding of 1."""
    slope = -1.1283791670955126 * tf.exp(-x * x)
    return tf.where(x < 6, slope * dy, tf.zeros_like(x))


def lengths(x):
    """A sum of squares of nanometres."""
    return tf.reduce_sum(tf.square(1e-9 * x), axis=-1)


def lengths_vjp(x, dy):
    """The factor 2 is missing."""
    return 1e-18 * x * tf.expand_dims(dy, -1)


def radiance_vjp(x, dy):
    """σ has two digits."""
    return 4 * 5.7e-8 * x**3 * dy


CUBE = custom_gradient(cube, doubled)
OPS: dict[str, Planted] = {
    "twice the slope of a tiny cube": Planted(elementwise(CUBE, cube_reference, name="tiny_cube", dtypes=BOTH), FIRST),
    "twice the second order of a tiny cube": Planted(
        elementwise(custom_gradient(cube, cube_vjp, doubled_second), cube_reference, name="tiny_cube_second"), SECOND
    ),
    "twice the dy slot of a tiny cube": Planted(
        elementwise(custom_gradient(cube, cube_vjp, doubled_slot), cube_reference, name="tiny_cube_slot"),
        ("second", "adjoint"),
    ),
    "no slope in the tail of a decay": Planted(
        elementwise(
            custom_gradient(lambda x: tf.exp(-x), cut_decay),
            lambda x: np.exp(-x),
            name="cut_decay",
            slot={"domain": (0.0, 300.0)},
        ),
        FIRST,
    ),
    "no slope in the tail of Planck's law": Planted(
        elementwise(
            custom_gradient(spectrum, cut_spectrum),
            lambda x: x**3 / np.expm1(x),
            name="cut_spectrum",
            slot={"domain": (1.0, 600.0)},
        ),
        FIRST,
    ),
    "Planck's constant of two digits in the gradient": Planted(
        elementwise(
            custom_gradient(lambda x: PLANCK * x, energy_vjp),
            lambda x: PLANCK * x,
            name="photon_energy_short",
            slot={"domain": (1e14, 1e15)},
        ),
        FIRST,
    ),
    "a diode of another temperature": Planted(
        elementwise(
            custom_gradient(lambda x: 1e-12 * tf.math.expm1(x / THERMAL), diode_vjp),
            lambda x: 1e-12 * np.expm1(x / THERMAL),
            name="cold_diode",
            slot={"domain": (0.0, 0.5)},
        ),
        FIRST,
    ),
    "Coulomb's constant of four digits": Planted(
        elementwise(attraction, lambda x: COULOMB * CHARGE**2 / x**2, slot={"domain": (1e-10, 1e-9)}), ("value",)
    ),
    "a clipped tiny gradient": Planted(
        elementwise(custom_gradient(lambda x: TINY * x * x, clipped), lambda x: TINY * x * x, name="tiny_clipped"),
        ("derivative", "linearity"),
    ),
    "a tiny number of another row": Planted(elementwise(shifted, None, name="tiny_shifted"), ("batching",)),
    "half as large in eager mode": Planted(
        elementwise(eager_half, lambda x: TINY * np.sin(x), name="tiny_eager_half"), ("modes",)
    ),
    "1 % of a tiny gradient in float32": Planted(
        elementwise(
            custom_gradient(lambda x: TINY * x * x, single_area),
            lambda x: TINY * x * x,
            name="tiny_single",
            dtypes=BOTH,
        ),
        ("dtypes",),
    ),
    "a tiny mixed term that does not reach one input": Planted(
        elementwise(
            custom_gradient(prism, prism_vjp, prism_unmixed), prism_reference, names=("x", "w"), name="tiny_prism"
        ),
        ("second", "symmetry"),
    ),
    "1 % off a tiny formula": Planted(
        elementwise(
            custom_gradient(tf.floor, straight), np.floor, name="tiny_formula", claim=square_claim, dtypes=WIDE
        ),
        FIRST,
    ),
    "no slope in the tail of erfc": Planted(
        elementwise(
            custom_gradient(tf.math.erfc, complement_vjp), special.erfc, name="cut_erfc", slot={"domain": (0.0, 25.0)}
        ),
        FIRST,
    ),
    "no factor 2 in a sum of nanometres": Planted(
        rows(
            custom_gradient(lengths, lengths_vjp),
            lambda x: ((1e-9 * x) ** 2).sum(axis=-1),
            name="nanometres",
            out=("N",),
        ),
        FIRST,
    ),
    "Stefan's constant of two digits in the gradient": Planted(
        elementwise(
            custom_gradient(lambda x: 5.670374419e-8 * x**4, radiance_vjp),
            lambda x: 5.670374419e-8 * x**4,
            name="short_radiance",
            slot={"domain": (100.0, 6000.0)},
        ),
        FIRST,
    ),
}
