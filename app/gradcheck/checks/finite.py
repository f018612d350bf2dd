"""Finiteness: no NaN and no infinity in a gradient where the value is finite, at the ends of what a dtype holds.

0, ±tiny, ±eps, ±1, ±√max and ±max/4 of an elementwise op; of any other, which multiplies them, to ±⁴√max, alone and as
entries that are all alike. Declared poles are excepted, points that the op calls singular, and points where the claim
itself is not finite.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from app.errors import Unprocessable
from app.gradcheck import rounding
from app.gradcheck.claims import all_outputs, named_slots, wide_primals
from app.gradcheck.site import Site, site_at
from app.gradcheck.target import Target
from app.gradcheck.verdict import Element, Finding, Place
from app.point import authored
from app.tensors.dtypes import DTYPES
from ops import Array, Derivative, Formula, Input, Surrogate

NAME = "finite"
WHAT = {1: ("gradients",), 2: ("products", "slots")}
# As a part of its size, nobody expects finite derivatives nearer to a pole.
NEAR = 1e-3


def check(target: Target) -> Iterator[Finding]:
    """Look at both orders in every dtype."""
    for dtype in target.dtypes:
        sites = list(_sites(target, dtype))
        for order in target.options.orders:
            yield _looked(target, sites, order, dtype)


def _looked(target: Target, sites: list[Site], order: int, dtype: str) -> Finding:
    place, points, wrong = Place(NAME, order, dtype=dtype), 0, 0
    worst: tuple[Element, str, str] | None = None
    for site in sites:
        target.checkpoint()
        expected = _expected_finite(site, order)
        for (what, name), value in site.values.items():
            if what not in WHAT[order]:
                continue
            bad = ~np.isfinite(np.asarray(value, np.float64)) & expected
            points, wrong = points + int(np.broadcast_to(expected, value.shape).sum()), wrong + int(bad.sum())
            if worst is None and bad.any():
                worst = _element(site, name, value, bad, dtype), str(what), name
    if worst is None:
        told = f"finite at all {points} extreme points where the value is finite" if points else "nothing to look at"
        return Finding(place, "pass" if points else "skipped", told, points)
    element, what, name = worst
    place = replace(place, output=name) if what == "slots" else replace(place, input=name)
    return Finding(place, "fail", _sentence(*worst, wrong, points), points, worst=element)


def _sentence(worst: Element, what: str, name: str, wrong: int, points: int) -> str:
    thing = {"gradients": f"d{name}", "products": f"d⟨vjp, v⟩/d{name}", "slots": f"d⟨vjp, v⟩/dd{name}"}[what]
    at = "" if worst.x is None else f" at x = {worst.x:.6g}"
    cure = "if it is infinite by nature, declare the pole (Input.poles, or Op.singular)"
    return f"{thing} is {worst.analytic:g}{at}, where the value is finite; {wrong} of {points} numbers; {cure}"


def _element(site: Site, name: str, value: Array, bad: Array, dtype: str) -> Element:
    at = int(np.argmax(np.ravel(bad)))
    x = np.ravel(site.point.inputs[name])[at] if name in site.point.inputs else None
    found, number = float(np.ravel(value)[at]), None if x is None else float(x)
    return Element(site.index(name)(at), number, found, float("nan"), float("inf"), dtype)


def _expected_finite(site: Site, order: int) -> Array:
    """Tell where a derivative must be finite: number by number for an elementwise op, else for the site."""
    with np.errstate(all="ignore"):
        finite = [np.isfinite(np.asarray(y, np.float64)) for (what, _), y in site.values.items() if what == "outputs"]
        finite += [np.isfinite(np.asarray(value, np.float64)) for value in _claimed(site, order)]
        away = [_is_away(slot, site.point.inputs[slot.name]) for slot in site.point.op.inputs]
    if site.is_elementwise:
        return np.logical_and.reduce([*finite, *away])
    return np.asarray(all(bool(part.all()) for part in (*finite, *away)) and not site.is_singular)


def _claimed(site: Site, order: int) -> list[Array]:
    """Return what must be finite for the claim to be so: the formula, or the values of the surrogate."""
    xs = wide_primals(site)
    dys, vectors = all_outputs(site, site.cotangents), [site.vectors.get(n, np.zeros(())) for n in site.point.inputs]
    claims = (site.claim.first, site.claim.second)[:order]
    found: list[Array] = []
    with authored(site.point.op, "claim"), np.errstate(all="ignore"):
        for claim, more in zip(claims, ((), (dys,)), strict=False):
            match claim:
                case Derivative():
                    pass
                case Surrogate(of=of):
                    values = of(xs, *more, xs)
                    found += list(named_slots(site, values).values()) if more else [np.asarray(y) for y in values]
                case Formula(vjp=formula):
                    slots = formula(xs, dys, *([vectors] if more else []))
                    found += list(named_slots(site, slots).values())
    return found


def _is_away(slot: Input, x: Array) -> Array:
    wide = np.asarray(x, np.float64)
    far = [np.abs(wide - pole) > NEAR * max(1.0, abs(pole)) for pole in slot.poles]
    return np.logical_and.reduce([np.ones(wide.shape, bool), *far])


def _extremes(dtype: str, *, elementwise: bool) -> Array:
    row = DTYPES[dtype]
    most = float(np.finfo(np.float64).max) if np.isinf(row.high) else row.high
    huge = [most**0.5 / 2, most / 4] if elementwise else [most**0.25]
    sizes = np.array([0.0, rounding.tiny(dtype), rounding.eps(dtype), 1.0, *huge])
    return np.concatenate([sizes, -sizes]).astype(row.numpy)


def _sites(target: Target, dtype: str) -> Iterator[Site]:
    """Yield sites with extreme numbers in one differentiable input after the other, those that the op takes."""
    base = target.at(target.sites[-1], dtype)
    if base is None:
        return
    for name in base.vectors:
        for inputs in _extreme_inputs(target, base.point.inputs, name, dtype):
            try:
                site = site_at(target.bound(inputs, dtype), np.random.default_rng(target.options.seed))
                _ = site.values
            except Unprocessable:
                continue
            yield site


def _of_each_kind(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
    """Return one number of each input of an elementwise op; where some are bools, with these false and with them true.

    What a mask hides from the value may still come up in the gradient, as 0·∞.
    """
    if not any(x.dtype == np.bool_ for x in inputs.values()):
        return {name: np.ravel(x)[:1] for name, x in inputs.items()}
    both = np.array([False, True])
    return {name: both if x.dtype == np.bool_ else np.repeat(np.ravel(x)[:1], 2) for name, x in inputs.items()}


def _extreme_inputs(
    target: Target, inputs: Mapping[str, Array], name: str, dtype: str
) -> Iterator[Mapping[str, Array]]:
    elementwise = target.op.batching == "elementwise"
    extremes = _extremes(dtype, elementwise=elementwise)
    if elementwise:
        some = _of_each_kind(inputs)
        for value in extremes:
            yield {**some, name: np.full_like(some[name], value)}
        return
    for value in extremes:
        x = inputs[name]
        yield {**inputs, name: np.full_like(x, value)}
        one = x.copy()
        one.reshape(-1)[:1] = value
        yield {**inputs, name: one}
