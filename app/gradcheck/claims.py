"""How an author's claims are called: arguments in the op's order, answers by name."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.gradcheck.site import Site
from ops import Array, many


def primals(site: Site, inputs: Mapping[str, Array]) -> list[Array]:
    """Return the op's inputs in order, some of them replaced."""
    return [inputs.get(name, x) for name, x in site.point.inputs.items()]


def wide_primals(site: Site) -> list[Array]:
    """Return the op's inputs in order, floats as float64; labels stay indices, and masks masks."""
    return [x if x.dtype.kind in "iub" else np.asarray(x, np.float64) for x in primals(site, {})]


def all_outputs(site: Site, dys: Mapping[str, Array]) -> list[Array]:
    """Return a cotangent for every output, 0 for those that have none."""
    outputs = [slot.name for slot in site.point.op.outputs]
    return [dys[name] if name in dys else 0 * site.values["outputs", name] for name in outputs]


def named_slots(site: Site, slots: Any) -> dict[str, Array]:
    """Return what a formula returns by input, those that it has a value for."""
    named = zip(site.point.inputs, many(slots), strict=True)
    return {name: value for name, value in named if value is not None and name in site.vectors}
