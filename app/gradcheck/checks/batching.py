"""Batching: rows that share a call are answered as rows alone are, or else requests must not share calls."""

from collections.abc import Iterator

import numpy as np

from app.binding import moved
from app.derivatives import Absent, forward, vjp
from app.gradcheck.comparison import widened
from app.gradcheck.site import Site
from app.gradcheck.target import Target
from app.gradcheck.verdict import Finding, Place, Tally
from app.modes import Key
from ops import Array

NAME = "batching"
# Where a batch is cut: a single one, a few, and the rest.
CUTS = (1, 4)


def check(target: Target) -> Iterator[Finding]:
    """Cut each site in parts and compare what they answer with the whole; a claim that fails is not trusted again."""
    about = Place(NAME, dtype=target.widest)
    if target.op.batching == "none":
        yield Finding(about, "skipped", "the op does not claim that requests may share a call")
        return
    tally = Tally(about)
    for site in target.sites:
        length = _length(site)
        cuts = [cut for cut in CUTS if cut < length]
        for start, stop in zip((0, *cuts), (*cuts, length), strict=True):
            _compare(target, tally, site, slice(start, stop))
    yield tally.finding("a part of the batch, alone,", "the same part in company")


def _length(site: Site) -> int:
    x = next(iter(site.point.inputs.values()))
    return x.size if site.is_elementwise else len(x)


def _compare(target: Target, tally: Tally, site: Site, part: slice) -> None:
    inputs, dys = ({n: _cut(site, x, part) for n, x in named.items()} for named in (site.point.inputs, site.cotangents))
    point = moved(site.point, inputs)
    found: dict[Key, Array] = {("outputs", name): y for name, y in forward(point).run().items()}
    _, gradients = vjp(point, tuple(site.vectors), dys, batched=False, outputs=False).run()
    for name, dx in gradients.items():
        found["gradients", name] = np.zeros_like(inputs[name]) if isinstance(dx, Absent) else dx
    for (what, name), value in found.items():
        key = what, name
        expected, bar = (_cut(site, x, part) for x in (site.values[key], site.bound(key, target.widest)))
        output = name if what == "outputs" else None
        allowed = widened(target, bar, expected)
        tally.add(value, expected, allowed, of_output=output, of_input=None if output else name)


def _cut(site: Site, x: Array, part: slice) -> Array:
    return x.ravel()[part] if site.is_elementwise else x[part]
