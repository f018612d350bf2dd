"""Whether two ways to compute the same agree: outputs, gradients and second order, each within its rounding."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from app.gradcheck.claimed import widened
from app.gradcheck.site import Site
from app.gradcheck.target import Target
from app.gradcheck.verdict import Finding, Tally
from app.modes import Key
from app.tensors.dtypes import DTYPES
from ops import Array, Mode

Pair: TypeAlias = tuple[Mapping[Key, Array], Site, Site]
"""What was found, the site whose values it is compared with, and the site that tells how far it may be off."""

ORDERS = {"outputs": 0, "gradients": 1, "products": 2, "slots": 2}
WHAT = {0: "y", 1: "dx", 2: "the second order"}


def agree(
    target: Target, check: str, pairs: Sequence[Pair], what: str, against: str, dtype: str, mode: Mode
) -> Iterator[Finding]:
    """Yield a finding for each order: what was found, against the values of the sites, within the rounding of ``dtype``."""
    for order in sorted({0, *target.options.orders}):
        tally = Tally(dtype)
        for found, site, measure in pairs:
            for key, value in found.items():
                if ORDERS[str(key[0])] == order:
                    _add(target, tally, key, value, site, measure)
        yield tally.finding(check, f"{WHAT[order]} ({what})", against, order=order, mode=mode)


def _add(target: Target, tally: Tally, key: Key, value: Array, site: Site, measure: Site) -> None:
    what, name = key
    expected = np.asarray(site.values[key], np.float64)
    row = DTYPES[tally.dtype]
    with np.errstate(over="ignore", invalid="ignore"):
        # What a narrow dtype cannot hold is infinite in it, and rightly so.
        expected = np.where(np.abs(expected) >= row.high, np.copysign(np.inf, expected), expected)
    allowed = widened(target, measure.bound(key, tally.dtype), expected)
    place = {"output": name} if what in ("outputs", "slots") else {"input": name}
    is_float = np.asarray(site.values[key]).dtype.kind not in "iu"
    allowed = allowed if is_float else 0 * allowed
    index = site.index(name) if what != "outputs" else None
    tally.add(value, expected, allowed, settled=np.ones(expected.shape, bool), index=index, **place)
