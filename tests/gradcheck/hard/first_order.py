"""Right ops that have no second order in TensorFlow, or whose authors declare none."""

import numpy as np
import tensorflow as tf
from mpmath import mp
from scipy import special

from ops import Claim, Input, InvalidInput, Output, custom_gradient
from tests.gradcheck.hard.exact import Hard, collected
from tests.gradcheck.hard.making import WIDE, elementwise, structured, within

# The ratio of the smallest to the largest singular value below which a matrix counts as singular.
FULL_RANK = 1e-2


def first_only(attrs):
    """Claim the derivative at first order, and no second one."""
    return Claim(second=None)


def incomplete_gamma(name, function, reference, **changes):
    """Return an op of a and x that is differentiable in both."""
    return elementwise(
        name,
        function,
        reference,
        {"a": [0.5, 2.0, 3.0], "x": [0.2, 0.5, 8.0]},
        slots={"a": {"domain": (0.5, 5.0)}, "x": {"domain": (0.1, 9.0), "poles": (0.0,)}},
        **{"claim": first_only, "validate": within(a=(0.1, 9.0), x=(0.0, 100.0))} | changes,
    )


def density(x, dy):
    """Return dx of the Erlang distribution of shape 2, by TensorFlow's kernel for another derivative, in a."""
    return x * tf.exp(-x) * dy + 0 * tf.raw_ops.IgammaGradA(a=tf.ones_like(x), x=x)


def triangular(x):
    """Return q and r of a QR decomposition, with a positive diagonal of r."""
    q, r = tf.linalg.qr(x)
    signs = tf.stop_gradient(tf.sign(tf.linalg.diag_part(r)))
    return q * signs, r * signs[..., None]


def triangular_reference(x):
    q, r = np.linalg.qr(x)
    signs = np.sign(np.diagonal(r))
    return q * signs, r * signs[:, None]


def of_full_rank(inputs, attrs):
    """Refuse matrices whose columns are nearly dependent."""
    if not np.isfinite(inputs["x"]).all() or _rank_ratio(inputs["x"]) < FULL_RANK:
        raise InvalidInput("x", "the columns are dependent", expected="full rank", got="dependent columns")


def _rank_ratio(x):
    sizes = np.linalg.svd(np.asarray(x, np.float64), compute_uv=False)
    return float(sizes[-1] / max(float(sizes[0]), float(np.finfo(np.float64).tiny)))


def well_conditioned(rng, dtype, attrs):
    """Draw a matrix of three rows and two columns that are far from dependent."""
    drawn = np.linalg.qr(rng.normal(size=(3, 2)))[0] * rng.uniform(0.5, 2.0, 2)
    return {"x": (drawn @ np.array([[1.0, 0.5], [0.0, 1.0]])).astype(dtype)}


OPS = collected(
    Hard(
        incomplete_gamma("igamma_of_both", tf.math.igamma, special.gammainc),
        lambda a, x: mp.gammainc(a, 0, x, regularized=True),
    ),
    Hard(
        incomplete_gamma("igammac_of_both", tf.math.igammac, special.gammaincc),
        lambda a, x: mp.gammainc(a, x, mp.inf, regularized=True),
    ),
    Hard(
        elementwise(
            "erlang",
            custom_gradient(lambda x: 1 - (1 + x) * tf.exp(-x), density),
            lambda x: 1 - (1 + x) * np.exp(-x),
            {"x": [0.5, 1.0, 4.0]},
            slots={"x": {"domain": (0.2, 6.0)}},
            claim=first_only,
            validate=within(x=(0.1, 10.0)),
        ),
        lambda x: 1 - (1 + x) * mp.exp(-x),
    ),
    Hard(
        structured(
            "qr_of_full_rank",
            triangular,
            triangular_reference,
            {"x": [[1.0, 2.0], [3.0, 5.0], [-1.0, 0.5]]},
            inputs=(Input("x", WIDE, (3, 2)),),
            outputs=(Output("q", WIDE, (3, 2)), Output("r", WIDE, (2, 2))),
            claim=first_only,
            validate=of_full_rank,
            sample=well_conditioned,
        )
    ),
)
