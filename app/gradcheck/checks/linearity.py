"""Linearity: vjp(2a + 3b) = 2 vjp(a) + 3 vjp(b), vjp(1) = vjp(a) + vjp(1 - a), and vjp(s a) = s vjp(a).

The scales s are 0, a large and a small power of two: a gradient that is clipped shows at cotangents that reach the
bounds, one that divides by cotangents at 0. An op may declare that its gradient is not linear.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from app.autodiff.derivatives import gradient
from app.autodiff.point import Arrays
from app.gradcheck import rounding
from app.gradcheck.reproduce import calls
from app.gradcheck.sample import Sample, draw
from app.gradcheck.target import Target
from pullback.gradcheck.numeric import Status
from pullback.gradcheck.verdict import Comparison, Finding, Place

NAME = "linearity"
# The error of each vjp of a sum is that of the sample's vjp, times its weight and the ratio of the cotangents.
RATIO = 20
# Powers of two, which round nothing; smaller ones where numbers overflow soon.
LARGE, LARGE_IN_HALF = 20, 3


class Identity(NamedTuple):
    """If the vjp is linear, that of ``cotangents`` is a sum of gradients with their weights.

    ``error`` is that of both sides, in units of that of the sample's vjp.
    """

    left: str
    right: str
    cotangents: Arrays
    terms: tuple[tuple[float, Arrays], ...]
    error: float = RATIO


def check(target: Target) -> Iterator[Finding]:
    """Compare both sides of each identity for each input."""
    place = Place(NAME, 1, dtype=target.widest)
    if not target.samples[0].claim.linear:
        yield Finding(place, "skipped", "the gradient is declared not linear in the cotangent")
        return
    comparisons: dict[tuple[str, str], dict[str, Comparison]] = {}
    rng = target.rng(NAME)
    for sample in target.nonsingular:
        for identity in _identities(sample, rng):
            new = {name: Comparison(replace(place, input=name), target.options.tolerances) for name in sample.vectors}
            _compare(sample, identity, comparisons.setdefault((identity.left, identity.right), new))
    for (left, right), by_input in comparisons.items():
        for name, comparison in by_input.items():
            yield comparison.finding(f"{left} in {name}", right)


def _identities(sample: Sample, rng: np.random.Generator) -> Iterator[Identity]:
    a, of_a = sample.cotangents, sample.of_kind("gradients")
    b = {name: draw(rng, dy.shape).astype(dy.dtype) for name, dy in a.items()}
    both = {name: 2 * dy + 3 * b[name] for name, dy in a.items()}
    terms = ((2.0, of_a), (3.0, gradient(sample.point, b).run()))
    yield Identity("vjp(2a + 3b)", "2 vjp(a) + 3 vjp(b)", both, terms)
    ones = {name: np.ones_like(dy) for name, dy in a.items()}
    rest = {name: ones[name] - dy for name, dy in a.items()}
    terms = ((1.0, of_a), (1.0, gradient(sample.point, rest).run()))
    yield Identity("vjp(1)", "vjp(a) + vjp(1 - a)", ones, terms)
    power = LARGE_IN_HALF if sample.point.spec.dtype in ("float16", "bfloat16") else LARGE
    for scale in (2.0**power, 2.0**-power, 0.0):
        scaled = {name: (scale * dy).astype(dy.dtype) for name, dy in a.items()}
        right = f"s vjp(a) for s = 2^{power}, 2^-{power} and 0"
        yield Identity("vjp(s a)", right, scaled, ((scale, of_a),), scale * RATIO)


def _compare(sample: Sample, identity: Identity, comparisons: Mapping[str, Comparison]) -> None:
    found, least = gradient(sample.point, identity.cotangents).run(), rounding.underflow(sample.point.spec.dtype)
    for name, comparison in comparisons.items():
        parts = [weight * np.asarray(of[name], np.float64) for weight, of in identity.terms]
        with np.errstate(invalid="ignore"):
            expected = np.sum(parts, axis=0)
        # At a pole, and where a number overflows, on the way too, there is nothing to compare.
        may_overflow = identity.error > RATIO
        known = [expected, *parts, found[name]] if may_overflow else [expected, *parts]
        is_finite = np.logical_and.reduce([np.isfinite(np.asarray(x, np.float64)) for x in known])
        status = np.where(is_finite, Status.OK, Status.NOT_FINITE)
        bound = sample.error_bound(("gradients", name), sample.point.spec.dtype)
        # Near an overflow the bound is infinite, and 0 times infinity is NaN.
        bar = (identity.error * bound if identity.error else np.zeros_like(bound)) + least
        index, some = sample.index(name), calls(sample, ("gradients", name), cotangents=identity.cotangents)
        comparison.add(found[name], expected, bar, status=status, index=index, calls=some)
