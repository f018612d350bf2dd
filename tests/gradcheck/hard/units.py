"""Right ops in SI units and in tails: numbers far smaller or larger than 1, and some that underflow."""

import numpy as np
import tensorflow as tf
from mpmath import mp
from scipy import special

from ops import Input, Output, custom_gradient
from tests.gradcheck.hard.exact import Hard, collected
from tests.gradcheck.hard.making import BOTH, WIDE, elementwise, structured, within

PLANCK, BOLTZMANN, THERMAL, CHARGE, COULOMB = 6.62607015e-34, 1.380649e-23, 0.02585, 1.602176634e-19, 8.9875517923e9
GRAVITY, STEFAN, LIGHT = 6.6743e-11, 5.670374419e-8, 299792458.0


def within_domain(name, function, reference, low, high, *, dtypes=WIDE, **slot):
    """Return an elementwise op of x from low to high."""
    at = [float(x) for x in np.linspace(low, high, 5)[1:-1]]
    slots = {"x": {"domain": (low, high), **slot}}
    checked = within(x=(min(low, -abs(high)), 2 * high))
    return elementwise(name, function, reference, {"x": at}, dtypes=dtypes, slots=slots, validate=checked)


def decay_vjp(x, dy):
    return -tf.exp(-x) * dy


def planck(x):
    return x**3 / tf.math.expm1(x)


def planck_vjp(x, dy):
    e = tf.math.expm1(x)
    return dy * (3 * x**2 - x**3 * (1 + 1 / e)) / e


OPS = collected(
    Hard(
        within_domain("photon_energy", lambda x: PLANCK * x, lambda x: PLANCK * x, 1e14, 1e15),
        lambda x: mp.mpf(PLANCK) * x,
    ),
    Hard(
        elementwise("tiny_cubic", lambda x: 1e-20 * x**3, lambda x: 1e-20 * x**3, {"x": [0.5, -1.0, 2.0]}, dtypes=BOTH),
        lambda x: mp.mpf(1e-20) * x**3,
    ),
    Hard(
        within_domain(
            "planck_tail", custom_gradient(planck, planck_vjp), lambda x: x**3 / np.expm1(x), 0.5, 200.0, poles=(0.0,)
        ),
        lambda x: x**3 / mp.expm1(x),
    ),
    Hard(
        within_domain("long_decay", custom_gradient(lambda x: tf.exp(-x), decay_vjp), lambda x: np.exp(-x), 0.0, 690.0),
        lambda x: mp.exp(-x),
    ),
    Hard(
        within_domain(
            "coulomb_force",
            lambda x: COULOMB * CHARGE**2 / tf.square(x),
            lambda x: COULOMB * CHARGE**2 / x**2,
            1e-10,
            1e-9,
            poles=(0.0,),
        ),
        lambda x: mp.mpf(COULOMB * CHARGE**2) / x**2,
    ),
    Hard(
        within_domain(
            "diode_current",
            lambda x: 1e-12 * tf.math.expm1(x / THERMAL),
            lambda x: 1e-12 * np.expm1(x / THERMAL),
            -0.2,
            0.6,
        ),
        lambda x: mp.mpf(1e-12) * mp.expm1(x / mp.mpf(THERMAL)),
    ),
    Hard(
        within_domain(
            "boltzmann_factor",
            lambda x: tf.exp(-x / (BOLTZMANN * 300.0)),
            lambda x: np.exp(-x / (BOLTZMANN * 300.0)),
            0.0,
            1e-19,
        ),
        lambda x: mp.exp(-x / mp.mpf(BOLTZMANN * 300.0)),
    ),
    Hard(within_domain("complement_tail", tf.math.erfc, special.erfc, 0.0, 25.0), mp.erfc),
    Hard(
        within_domain("radiance", lambda x: STEFAN * x**4, lambda x: STEFAN * x**4, 100.0, 6000.0, dtypes=BOTH),
        lambda x: mp.mpf(STEFAN) * x**4,
    ),
    Hard(
        within_domain("rest_energy", lambda x: x * LIGHT**2, lambda x: x * LIGHT**2, 9e-31, 2e-27),
        lambda x: x * mp.mpf(LIGHT**2),
    ),
    Hard(
        elementwise(
            "attraction",
            lambda m, r: GRAVITY * m / tf.square(r),
            lambda m, r: GRAVITY * m / r**2,
            {"m": [6e24, 7e22], "r": [6.4e6, 1.7e6]},
            dtypes=WIDE,
            slots={"m": {"domain": (1e22, 1e25)}, "r": {"domain": (1e6, 1e7), "poles": (0.0,)}},
            validate=within(m=(0.0, 1e26), r=(1e5, 1e8)),
        ),
        lambda m, r: mp.mpf(GRAVITY) * m / r**2,
    ),
    Hard(
        within_domain(
            "logistic_tail", lambda x: tf.exp(-x) / (1 + tf.exp(-x)), lambda x: special.expit(-x), -5.0, 300.0
        ),
        lambda x: 1 / (1 + mp.exp(x)),
    ),
    Hard(
        structured(
            "nanometres_squared",
            lambda x: tf.reduce_sum(tf.square(1e-9 * x), axis=-1),
            lambda x: ((1e-9 * x) ** 2).sum(axis=-1),
            {"x": [[0.5, -1.25, 2.0], [-3.0, 0.25, 1.0]]},
            inputs=(Input("x", BOTH, ("N", "M")),),
            outputs=(Output("y", BOTH, ("N",)),),
            batching="leading_axis",
        ),
        lambda x: [mp.fsum((mp.mpf(1e-9) * v) ** 2 for v in row) for row in x],
    ),
)
