"""How an author's claims are called: arguments in the op's order, answers by name."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.gradcheck.sample import Sample
from ops import Array, many


def primals(sample: Sample, inputs: Mapping[str, Array]) -> list[Array]:
    """Return the op's inputs in order, some of them replaced."""
    return [inputs.get(name, x) for name, x in sample.point.inputs.items()]


def wide_primals(sample: Sample) -> list[Array]:
    """Return the op's inputs in order, floats as float64; labels stay indices, and masks masks."""
    return [x if x.dtype.kind in "iub" else np.asarray(x, np.float64) for x in primals(sample, {})]


def all_outputs(sample: Sample, dys: Mapping[str, Array]) -> list[Array]:
    """Return a cotangent for every output, 0 for those that have none."""
    outputs = [slot.name for slot in sample.point.op.outputs]
    return [dys[name] if name in dys else 0 * sample.values["outputs", name] for name in outputs]


def named_slots(sample: Sample, slots: Any) -> dict[str, Array]:
    """Return what a formula returns by input, those that it has a value for."""
    named = zip(sample.point.inputs, many(slots), strict=True)
    return {name: value for name, value in named if value is not None and name in sample.vectors}
