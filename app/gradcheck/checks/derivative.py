"""First order: dx at a random dy is the derivative that the claim names.

Of forward, taken numerically and with an error bar; of the surrogate, likewise; or the formula.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from app.derivatives import vjp
from app.gradcheck.claims import all_outputs, named_slots, primals
from app.gradcheck.comparison import Differentiated, Gradient, compare, compare_with_formula, row_by_row
from app.gradcheck.numeric import Trouble
from app.gradcheck.rows import Rows
from app.gradcheck.site import Site
from app.gradcheck.target import Target
from app.gradcheck.verdict import Finding, Place, Tally
from ops import Array, Derivative, Formula, Surrogate

NAME = "derivative"
AGAINST = {
    Derivative: "the numeric derivative of forward",
    Surrogate: "the numeric derivative of its surrogate",
    Formula: "the declared formula",
}


def check(target: Target) -> Iterator[Finding]:
    """Check each input against each output in turn, the cotangents of the other outputs 0."""
    for output in target.sites[0].cotangents:
        tallies = {name: Tally(Place(NAME, 1, output, name, dtype=target.widest)) for name in target.sites[0].vectors}
        for site in target.smooth:
            _at(target, site, output, tallies)
        against = AGAINST[type(target.sites[0].claim.first)]
        yield from (tally.finding(f"d{name}", against) for name, tally in tallies.items())


def troubles(target: Target, site: Site) -> dict[str, Array]:
    """Return for each input where forward has no derivative: kinks and jumps, coordinate by coordinate."""
    if not site.troubles:
        for output in site.cotangents:
            _at(target, site, output, {name: Tally(Place(NAME)) for name in site.vectors})
    return site.troubles


def _at(target: Target, site: Site, output: str, tallies: Mapping[str, Tally]) -> None:
    whole = target.whole(site)
    bounds = {name: whole.bound(("gradients", name), target.widest) for name in tallies}
    gradient = Gradient(_gradients(whole, output), bounds, tallies, everywhere=True)
    claim = site.claim.first
    if isinstance(claim, Formula):
        dys = {name: dy if name == output else 0 * dy for name, dy in whole.cotangents.items()}
        compare_with_formula(
            target,
            whole,
            gradient,
            lambda xs: named_slots(whole, claim.vjp(primals(whole, xs), all_outputs(whole, dys))),
        )
    else:
        compare(target, site, gradient, lambda near: _differentiated(target, near, output))
    for name, trouble in gradient.troubles.items():
        site.troubles[name] = np.where(trouble == Trouble.NONE, site.troubles.get(name, trouble), trouble)


def _differentiated(target: Target, site: Site, output: str) -> Differentiated:
    """Return forward or the surrogate, with the output's cotangent."""
    claim, at = site.claim.first, primals(site, {})

    def surrogate(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        assert isinstance(claim, Surrogate)
        names = [slot.name for slot in site.point.op.outputs]
        return dict(zip(names, claim.of(primals(site, inputs), at), strict=True))

    rows = Rows(site.point, target.checkpoint)
    function = row_by_row(site, surrogate) if isinstance(claim, Surrogate) else rows.forward
    leaves = {name: site.point.inputs[name] for name in site.vectors}
    return Differentiated(function, leaves, {output: site.cotangents[output]})


def _gradients(site: Site, output: str) -> dict[str, Array]:
    if list(site.cotangents) == [output]:
        return {name: site.values["gradients", name] for name in site.vectors}
    _, found = vjp(
        site.point, tuple(site.vectors), {output: site.cotangents[output]}, batched=False, outputs=False
    ).run()
    return {name: 0 * site.vectors[name] if isinstance(dx, str) else dx for name, dx in found.items()}
