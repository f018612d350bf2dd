"""Linearity: vjp(2a + 3b) = 2 vjp(a) + 3 vjp(b), vjp(1) = vjp(a) + vjp(1 - a), and vjp(s a) = s vjp(a).

The scales s are 0, large and small powers of two: a gradient that is clipped shows at cotangents that reach the bounds,
one that divides by cotangents at 0. The second order is scaled too, by its cotangents and by its vectors. An op may
declare that its gradient is not linear. One that declares to be holomorphic has vjp(1j a) = 1j vjp(a): those are the
Cauchy-Riemann equations, for then dz = conj(w') dw.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from app.autodiff.derivatives import gradient
from app.autodiff.point import Arrays
from app.gradcheck import rounding
from app.gradcheck.agreement import ORDERS
from app.gradcheck.reproduce import calls
from app.gradcheck.sample import Sample, draw
from app.gradcheck.target import Target
from app.runtime.modes import Key
from ops import Array, Formula
from pullback.gradcheck import identities
from pullback.gradcheck.identities import Identity
from pullback.gradcheck.number_comparison import Comparison
from pullback.gradcheck.numeric import Status
from pullback.gradcheck.verdict import Finding, Subject

NAME = "linearity"
# How much larger the error of a sum of vjps may be than that of the sample's vjp: weights times larger cotangents.
RATIO = 20
# Powers of two, which round nothing; smaller ones where numbers overflow soon.
POWERS, POWERS_IN_HALF = (20, 40), (3,)


def check(target: Target) -> Iterator[Finding]:
    """Compare both sides of each identity for each input."""
    subject = Subject(NAME, 1, dtype=target.widest)
    if not target.samples[0].claim.linear:
        yield Finding(subject, "skipped", "the gradient is declared not linear in the cotangent")
        return
    comparisons: dict[tuple[str, str], dict[str, Comparison]] = {}
    rng = target.rng(NAME)
    for sample in target.nonsingular:
        b = {name: draw(rng, dy.shape).astype(dy.dtype) for name, dy in sample.cotangents.items()}
        vjp = partial(_vjp, sample)
        for identity in identities.sums(vjp, sample.cotangents, sample.of_kind("gradients"), b):
            new = {name: Comparison(replace(subject, input=name), target.options.tolerances) for name in sample.vectors}
            _compare(sample, identity, comparisons.setdefault((identity.left, identity.right), new))
    for (left, right), by_input in comparisons.items():
        for name, comparison in by_input.items():
            yield comparison.finding(f"{left} in {name}", right)
    if target.op.holomorphic:
        yield from _check_rotation(target)
    yield from _check_scales(target)


def _check_rotation(target: Target) -> Iterator[Finding]:
    """Compare the gradients of complex inputs at cotangents of complex outputs, and at these times 1j."""
    subject, side = Subject(NAME, 1, dtype=target.widest), target.samples[0].point.spec
    names = [name for name in target.samples[0].vectors if name in side.inputs.pairs]
    new = {name: Comparison(replace(subject, input=name), target.options.tolerances) for name in names}
    for sample in target.nonsingular:
        a = {y: dy if y in side.outputs.pairs else np.zeros_like(dy) for y, dy in sample.cotangents.items()}
        turned = {y: _times_i(dy) if y in side.outputs.pairs else dy for y, dy in a.items()}
        of_a = {x: _times_i(dx) for x, dx in _vjp(sample, a).items() if x in new}
        _compare(sample, Identity("vjp(1j a)", "1j vjp(a)", turned, ((1.0, of_a),)), new)
    for name, comparison in new.items():
        yield comparison.finding(f"vjp(1j a) in {name}, which is declared holomorphic,", "1j vjp(a)")


def _times_i(pairs: Array) -> Array:
    """Return pairs of the real and the imaginary part, multiplied by 1j."""
    return np.stack([-pairs[..., 1], pairs[..., 0]], axis=-1)


def _vjp(sample: Sample, cotangents: Arrays) -> Arrays:
    return gradient(sample.point, cotangents).run()


def _compare(sample: Sample, identity: Identity[str], comparisons: Mapping[str, Comparison]) -> None:
    found, least = _vjp(sample, identity.cotangents), rounding.underflow(sample.point.spec.dtype)
    for name, comparison in comparisons.items():
        key = "gradients", name
        bar, scale = RATIO * sample.error_bound(key, sample.point.spec.dtype) + least, sample.scales("gradients")[name]
        where = {"index": sample.index(name), "calls": calls(sample, key, cotangents=identity.cotangents)}
        identities.compare(comparison, identity, name, found[name], lambda _, bar=bar: bar, scale=scale, **where)


def _check_scales(target: Target) -> Iterator[Finding]:
    """Compare the gradients at scaled cotangents, and the second order at scaled cotangents and vectors."""
    comparisons: dict[tuple[Key, str], Comparison] = {}
    powers = POWERS_IN_HALF if "float16" in (target.widest, target.samples[0].inner_dtype) else POWERS
    for sample in target.nonsingular:
        for scale in (*(2.0**power for n in powers for power in (n, -n)), 0.0):
            target.checkpoint()
            for scaled, kinds in _scaled(sample, scale):
                for key in sample.values:
                    if (what := kinds.get(str(key[0]))) is None:
                        continue
                    subject = Subject(NAME, ORDERS[str(key[0])], dtype=target.widest)
                    new = Comparison(subject, target.options.tolerances)
                    _compare_scaled(sample, scaled, scale, key, comparisons.setdefault((key, what), new))
    scales = f"s = {', '.join(f'2^±{n}' for n in powers)} and 0"
    for ((_, name), what), comparison in comparisons.items():
        yield comparison.finding(f"{what} in {name}", f"s {what.replace('s ', '')} for {scales}")


def _scaled(sample: Sample, scale: float) -> Iterator[tuple[Sample, Mapping[str, str]]]:
    """Yield the sample with scaled cotangents or vectors, and the kinds of values that scale with them."""
    dys, vectors = (
        {name: (scale * x).astype(x.dtype) for name, x in named.items()}
        for named in (sample.cotangents, sample.vectors)
    )
    of_dys = {"gradients": "vjp(s a)"}
    if not isinstance(sample.claim.second, Formula):
        of_dys["products"] = "hvp(s a, v)"
    yield Sample(sample.point, dys, sample.vectors, last=sample.last), of_dys
    if sample.last == "products":
        of_vectors = {"slots": "jvp(s v)", "products": "hvp(a, s v)"}
        yield Sample(sample.point, sample.cotangents, vectors, last=sample.last), of_vectors


def _compare_scaled(sample: Sample, scaled: Sample, scale: float, key: Key, comparison: Comparison) -> None:
    found, dtype = scaled.values[key], sample.point.spec.dtype
    expected = scale * np.asarray(sample.values[key], np.float64)
    # At a pole, and where a number overflows, on the way too, there is nothing to compare.
    known = (sample.values[key], expected, found) if scale > 1 else (sample.values[key], expected)
    is_finite = np.logical_and.reduce([np.isfinite(np.asarray(x, np.float64)) for x in known])
    status = np.where(is_finite, Status.OK, Status.NOT_FINITE)
    bound = sample.error_bound(key, dtype)
    # Near an overflow the bound is infinite, and 0 times infinity is NaN.
    bar = (scale * RATIO * bound if scale else np.zeros_like(bound)) + rounding.underflow(dtype)
    if scale and _may_be_lost(found, expected, bar, dtype):
        bar = np.fmax(bar, _lost(sample, scaled, scale, key))
    index, some = sample.index(str(key[1])), calls(scaled, key)
    comparison.add(found, expected, bar, status=status, index=index, key=key, calls=some)


def _may_be_lost(found: Array, expected: Array, bar: Array, dtype: str) -> bool:
    """Return whether a number looks wrong that something which underflows may explain."""
    with np.errstate(invalid="ignore"):
        is_deep = np.fmax(np.abs(found), np.abs(expected)) < rounding.deepest(dtype)
        return bool((is_deep & (np.abs(found - expected) > bar)).any())


def _lost(sample: Sample, scaled: Sample, scale: float, key: Key) -> Array:
    """Return how far scaled numbers move if what underflows at the smaller of both scales becomes 0 at the larger."""
    larger, least = (scaled if scale > 1 else sample), rounding.tiny(sample.point.spec.dtype) * max(scale, 1 / scale)
    moved = larger.moved_by_flushing(least)[key] * min(scale, 1.0)
    return np.where(moved < rounding.deepest(sample.point.spec.dtype), moved, 0.0)
