"""Linearity: vjp(2a + 3b) = 2 vjp(a) + 3 vjp(b), unless the op declares its gradient not linear."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from app.autodiff.derivatives import gradient
from app.gradcheck.reproduce import calls
from app.gradcheck.sample import draw
from app.gradcheck.target import Target
from pullback.gradcheck.numeric import Status
from pullback.gradcheck.verdict import Comparison, Finding, Place

NAME = "linearity"
# The error of each of the three vjps is that of the sample's vjp, times its weight and the ratio of the cotangents.
RATIO = 20


def check(target: Target) -> Iterator[Finding]:
    """Compare both sides for each input."""
    place = Place(NAME, 1, dtype=target.widest)
    if not target.samples[0].claim.linear:
        yield Finding(place, "skipped", "the gradient is declared not linear in the cotangent")
        return
    comparisons = {
        name: Comparison(replace(place, input=name), target.tolerances) for name in target.samples[0].vectors
    }
    rng = target.rng(NAME)
    for sample in target.nonsingular:
        other = {name: draw(rng, dy.shape).astype(dy.dtype) for name, dy in sample.cotangents.items()}
        both = {name: 2 * dy + 3 * other[name] for name, dy in sample.cotangents.items()}
        one, two, together = (gradient(sample.point, dys).run() for dys in (sample.cotangents, other, both))
        bounds = sample.error_bounds("gradients", target.widest)
        for name, comparison in comparisons.items():
            with np.errstate(invalid="ignore", over="ignore"):
                expected = 2 * one[name] + 3 * two[name]
            # At a pole, and where the sum overflows, there is nothing to compare.
            is_finite = np.isfinite(np.asarray(expected, np.float64)) & np.isfinite(np.asarray(one[name], np.float64))
            status = np.where(is_finite, Status.OK, Status.NOT_FINITE)
            index, some = sample.index(name), calls(sample, ("gradients", name), cotangents=both)
            comparison.add(together[name], expected, RATIO * bounds[name], status=status, index=index, calls=some)
    for name, comparison in comparisons.items():
        yield comparison.finding(f"vjp(2a + 3b) in {name}", "2 vjp(a) + 3 vjp(b)")
