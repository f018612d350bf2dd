"""Special functions near their poles, in their tails and at the ends of their domains."""

import numpy as np
import tensorflow as tf
from mpmath import mp
from scipy import special

from ops import FLOATS, UNCOMPILED, Input, Output, custom_gradient
from tests.gradcheck.hard.exact import Hard, collected
from tests.gradcheck.hard.making import BOTH, WIDE, elementwise, structured, within

NEGATIVE_POLES = (0.0, -1.0, -2.0, -3.0, -4.0)
SINC_TERMS = 12


def of_x(name, function, reference, x, *, slot, **changes):
    """Return an elementwise op of x."""
    return elementwise(name, function, reference, {"x": x}, slots={"x": slot}, **changes)


def from_0_to_1(low=1e-6):
    """Return the slot and the validation of a probability."""
    return {"slot": {"domain": (low, 1 - low), "poles": (0.0, 1.0)}, "validate": within(x=(0.0, 1.0))}


def between_ones(reach):
    return {"slot": {"domain": (-reach, reach), "poles": (-1.0, 1.0)}, "validate": within(x=(-1.0, 1.0))}


def smooth_sinc(x):
    """sin(x)/x, by its series where |x| < 1."""
    is_small = tf.abs(x) < 1
    small, large = tf.where(is_small, x, 0 * x), tf.where(is_small, 0 * x + 1, x)
    series = term = tf.ones_like(x)
    for n in range(1, SINC_TERMS):
        term = -term * small * small / (2 * n * (2 * n + 1))
        series += term
    return tf.where(is_small, series, tf.sin(large) / large)


def erfinv_vjp(x, dy):
    y = tf.math.erfinv(x)
    return tf.cast(np.sqrt(np.pi) / 2, x.dtype) * tf.exp(y * y) * dy


BETA = (
    Input("a", WIDE, differentiable=False, domain=(0.5, 3.0)),
    Input("b", WIDE, differentiable=False, domain=(0.5, 3.0)),
    Input("x", WIDE, domain=(0.01, 0.99), poles=(0.0, 1.0)),
)
GAMMA = (Input("a", WIDE, differentiable=False, domain=(0.5, 5.0)), Input("x", WIDE, domain=(0.1, 9.0), poles=(0.0,)))
Y = (Output("y", WIDE),)

OPS = collected(
    Hard(
        of_x(
            "lgamma_between_poles",
            tf.math.lgamma,
            special.gammaln,
            [-0.001, -2.5, -1.999, 0.5, 3.0],
            slot={"domain": (-4.0, 4.0), "poles": NEGATIVE_POLES},
            validate=within(x=(-4.5, 50.0)),
        ),
        lambda x: mp.log(abs(mp.gamma(x))),
    ),
    Hard(
        of_x(
            "lgamma_at_its_roots",
            tf.math.lgamma,
            special.gammaln,
            [1.0, 2.0, 1.0000001, 1e-5],
            slot={"domain": (0.9, 2.1), "poles": (0.0,)},
            dtypes=BOTH,
            validate=within(x=(0.0, 1e6)),
        ),
        mp.loggamma,
    ),
    Hard(
        of_x(
            "digamma",
            tf.math.digamma,
            special.digamma,
            [1.4616321449683623, 0.01, 100.0],
            slot={"domain": (0.05, 10.0), "poles": (0.0,)},
            validate=within(x=(0.0, 1e6)),
        ),
        lambda x: mp.psi(0, x),
    ),
    Hard(
        of_x(
            "erfinv",
            custom_gradient(tf.math.erfinv, erfinv_vjp),
            special.erfinv,
            [0.0, 0.5, -0.999999],
            **between_ones(0.9999),
        ),
        mp.erfinv,
    ),
    Hard(
        of_x("erfinv_single", tf.math.erfinv, special.erfinv, [0.0, 0.5, -0.999], dtypes=BOTH, **between_ones(0.99)),
        mp.erfinv,
    ),
    Hard(
        of_x("ndtri", tf.math.ndtri, special.ndtri, [1e-8, 0.5, 0.999], **from_0_to_1(1e-4)),
        lambda x: mp.sqrt(2) * mp.erfinv(2 * x - 1),
    ),
    Hard(
        structured(
            "betainc",
            lambda a, b, x: tf.math.betainc(tf.stop_gradient(a), tf.stop_gradient(b), x),
            special.betainc,
            {"a": [0.5, 2.0, 3.0], "b": [0.5, 1.0, 2.5], "x": [0.01, 0.5, 0.999]},
            inputs=BETA,
            outputs=Y,
            batching="elementwise",
            validate=within(a=(0.1, 9.0), b=(0.1, 9.0), x=(0.0, 1.0)),
            # XLA's values are off by 65 roundings at most points, and by 370 at some; those of the kernel by 8.
            modes=UNCOMPILED,
        ),
        lambda a, b, x: mp.betainc(a, b, 0, x, regularized=True),
    ),
    Hard(
        structured(
            "igamma",
            lambda a, x: tf.math.igamma(tf.stop_gradient(a), x),
            special.gammainc,
            {"a": [0.5, 2.0, 3.0], "x": [0.1, 0.5, 8.0]},
            inputs=GAMMA,
            outputs=Y,
            batching="elementwise",
            validate=within(a=(0.1, 9.0), x=(0.0, 100.0)),
        ),
        lambda a, x: mp.gammainc(a, 0, x, regularized=True),
    ),
    Hard(
        of_x(
            "bessel_j0",
            tf.math.special.bessel_j0,
            special.j0,
            [0.5, 2.404825557695773, 50.0],
            slot={"domain": (0.1, 60.0)},
            modes=UNCOMPILED,
            validate=within(x=(0.1, 100.0)),
        ),
        lambda x: mp.besselj(0, x),
    ),
    Hard(
        of_x(
            "bessel_i0",
            tf.math.special.bessel_i0,
            special.i0,
            [0.5, -2.0, 30.0],
            slot={"domain": (-30.0, 30.0), "poles": (0.0,)},
            modes=UNCOMPILED,
            dtypes=BOTH,
            validate=within(x=(-50.0, 50.0)),
        ),
        lambda x: mp.besseli(0, x),
    ),
    Hard(
        of_x(
            "bessel_k0",
            tf.math.special.bessel_k0,
            special.k0,
            [0.01, 1.0, 30.0],
            slot={"domain": (0.05, 20.0), "poles": (0.0,)},
            modes=UNCOMPILED,
            validate=within(x=(0.0, 100.0)),
        ),
        lambda x: mp.besselk(0, x),
    ),
    Hard(
        of_x(
            "dawson",
            tf.math.special.dawsn,
            special.dawsn,
            [0.0, 0.9241388730045917, -2.0],
            slot={"domain": (-2.0, 2.0)},
            modes=UNCOMPILED,
            validate=within(x=(-3.0, 3.0)),
        ),
        lambda x: mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x),
    ),
    Hard(
        of_x(
            "exponential_integral",
            tf.math.special.expint,
            special.expi,
            [0.3725074107813666, 5.0, 20.0],
            slot={"domain": (0.1, 20.0), "poles": (0.0,)},
            modes=UNCOMPILED,
            validate=within(x=(1e-3, 50.0)),
        ),
        mp.ei,
    ),
    Hard(
        of_x(
            "fresnel_sine",
            tf.math.special.fresnel_sin,
            lambda x: special.fresnel(x)[0],
            [0.0, 1.0, -9.0],
            slot={"domain": (-10.0, 10.0)},
            modes=UNCOMPILED,
            validate=within(x=(-20.0, 20.0)),
        ),
        mp.fresnels,
    ),
    Hard(
        structured(
            "hurwitz_zeta",
            lambda s, q: tf.math.zeta(tf.stop_gradient(s), q),
            special.zeta,
            {"s": [1.5, 3.0, 8.0], "q": [0.1, 1.0, 5.0]},
            inputs=(
                Input("s", WIDE, differentiable=False, domain=(1.5, 6.0)),
                Input("q", WIDE, domain=(0.1, 5.0), poles=(0.0,)),
            ),
            outputs=Y,
            batching="elementwise",
            validate=within(s=(1.1, 9.0), q=(1e-3, 100.0)),
        ),
        mp.zeta,
    ),
    Hard(
        of_x(
            "expm1_ratio",
            lambda x: tf.math.expm1(x) / x,
            lambda x: np.expm1(x) / x,
            [0.5, 1.0, 5.0],
            slot={"domain": (0.5, 5.0)},
            dtypes=BOTH,
            validate=within(x=(0.4, 20.0)),
        ),
        lambda x: mp.expm1(x) / x,
    ),
    Hard(
        of_x("sinc", smooth_sinc, lambda x: np.sinc(x / np.pi), [0.0, 1e-9, 0.5, 3.0], slot={"domain": (-9.0, 9.0)}),
        mp.sinc,
    ),
    Hard(
        of_x(
            "logit",
            lambda x: tf.math.log(x) - tf.math.log1p(-x),
            special.logit,
            [1e-12, 0.5, 0.9999],
            dtypes=BOTH,
            **from_0_to_1(),
        ),
        lambda x: mp.log(x) - mp.log1p(-x),
    ),
    Hard(
        of_x(
            "softplus_far_out",
            tf.math.softplus,
            lambda x: np.logaddexp(0, x),
            [-100.0, 0.0, 80.0],
            slot={"domain": (-100.0, 100.0)},
            dtypes=FLOATS,
        ),
        lambda x: mp.log1p(mp.exp(x)),
    ),
    Hard(of_x("atanh_near_1", tf.math.atanh, np.arctanh, [0.0, 0.999999, -0.5], **between_ones(0.99999)), mp.atanh),
    Hard(
        of_x("erfc_tail", tf.math.erfc, special.erfc, [0.0, 5.0, 26.0], slot={"domain": (0.0, 25.0)}, dtypes=BOTH),
        mp.erfc,
    ),
)
