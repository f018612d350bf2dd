"""Linearity: vjp(2a + 3b) = 2 vjp(a) + 3 vjp(b), unless the op declares that it is not linear."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from app.autodiff.derivatives import Absent, vjp
from app.gradcheck.comparison import widened
from app.gradcheck.sample import Arrays, Sample, draw
from app.gradcheck.target import Target
from app.gradcheck.verdict import Comparison, Finding, Place

NAME = "linearity"
# Each of the three vjps is off by as much as that of the sample, times its weight and the ratio of their cotangents.
SLACK = 20


def check(target: Target) -> Iterator[Finding]:
    """Compare both sides for each input."""
    about = Place(NAME, 1, dtype=target.widest)
    if not target.samples[0].claim.linear:
        yield Finding(about, "skipped", "declared not linear in the cotangent")
        return
    comparisons = {name: Comparison(replace(about, input=name)) for name in target.samples[0].vectors}
    for sample in target.smooth:
        _compare(target, sample, comparisons)
    for name, comparison in comparisons.items():
        yield comparison.finding(f"vjp(2a + 3b) in {name}", "2 vjp(a) + 3 vjp(b)")


def _compare(target: Target, sample: Sample, comparisons: Mapping[str, Comparison]) -> None:
    other = {name: draw(target.rng, dy.shape).astype(dy.dtype) for name, dy in sample.cotangents.items()}
    both = {name: 2 * dy + 3 * other[name] for name, dy in sample.cotangents.items()}
    one, two, together = (_gradients(sample, dys) for dys in (sample.cotangents, other, both))
    for name, comparison in comparisons.items():
        expected = 2 * one[name] + 3 * two[name]
        allowed = widened(target, SLACK * sample.bound(("gradients", name), target.widest), expected)
        comparison.add(together[name], expected, allowed, index=sample.index(name))


def _gradients(sample: Sample, dys: Arrays) -> Arrays:
    _, found = vjp(sample.point, tuple(sample.vectors), dys, batched=False, outputs=False).run()
    return {name: 0 * sample.vectors[name] if isinstance(dx, Absent) else dx for name, dx in found.items()}
