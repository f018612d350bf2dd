"""Batching: rows that share a call are answered as rows alone are, or else requests must not share calls."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from app.binding import bind_dims
from app.derivatives import Absent, forward, vjp
from app.gradcheck.claimed import widened
from app.gradcheck.site import Named, Site
from app.gradcheck.target import Target
from app.gradcheck.verdict import Finding, Tally
from app.modes import Key
from ops import Array

NAME = "batching"
# Parts of an elementwise op's numbers: a single one, a few, and the rest.
PARTS = (1, 4)


def check(target: Target) -> Iterator[Finding]:
    """Cut each site in parts and compare what they answer with the whole; a claim that fails is not trusted again."""
    claimed = target.op.batching
    if claimed == "none":
        yield Finding(NAME, "skipped", "the op does not claim that requests may share a call", mode="graph", dtype=target.widest)
        return
    tally = Tally(target.widest)
    for site in target.sites:
        length = _length(site)
        cuts = [cut for cut in PARTS if cut < length]
        for start, stop in zip((0, *cuts), (*cuts, length), strict=True):
            _compare(target, tally, site, slice(start, stop))
    finding = tally.finding(NAME, "a part of the batch, alone,", "the same part in company", mode="graph")
    if finding.verdict == "fail":
        target.batching = "none"
    yield finding


def _length(site: Site) -> int:
    x = next(iter(site.point.inputs.values()))
    return x.size if site.is_elementwise else len(x)


def _compare(target: Target, tally: Tally, site: Site, part: slice) -> None:
    inputs, dys = ({n: _cut(site, x, part) for n, x in named.items()} for named in (site.point.inputs, site.cotangents))
    point = replace(site.point, inputs=inputs, dims=bind_dims(site.point.op, inputs, site.point.attrs))
    found: dict[Key, Array] = {("outputs", name): y for name, y in forward(point).items()}
    _, gradients = vjp(point, tuple(site.vectors), dys, batched=False, outputs=False)
    found |= {("gradients", n): np.zeros_like(inputs[n]) if isinstance(dx, Absent) else dx for n, dx in gradients.items()}
    for key, value in found.items():
        expected, bar = (_cut(site, x, part) for x in (site.values[key], site.bound(key, target.widest)))
        place = {"output": key[1]} if key[0] == "outputs" else {"input": key[1]}
        if np.shape(value) != np.shape(expected):
            value, expected = np.asarray(np.nan), np.asarray(0.0)
            bar = np.asarray(0.0)
        tally.add(value, expected, widened(target, bar, expected), settled=np.ones(np.shape(value), bool), **place)


def _cut(site: Site, x: Array, part: slice) -> Array:
    return x.ravel()[part] if site.is_elementwise else x[part]


__all__ = ["NAME", "Named", "check"]
