"""Call the functions of a claim: arguments in the op's order, results by name."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.gradcheck.sample import Sample
from ops import Array, many


def primals(sample: Sample, inputs: Mapping[str, Array]) -> list[Array]:
    """Return the op's inputs in order, those in ``inputs`` replaced."""
    return [inputs.get(name, x) for name, x in sample.point.inputs.items()]


def wide_primals(sample: Sample) -> list[Array]:
    """Return the op's inputs in order, floats as float64; integers and bools keep their dtype."""
    return [x if x.dtype.kind in "iub" else np.asarray(x, np.float64) for x in primals(sample, {})]


def all_cotangents(sample: Sample, dys: Mapping[str, Array]) -> list[Array]:
    """Return a cotangent for every output, zeros for outputs without one."""
    outputs = [slot.name for slot in sample.point.op.outputs]
    return [dys[name] if name in dys else 0 * sample.values["outputs", name] for name in outputs]


def named_slots(sample: Sample, slots: Any) -> dict[str, Array]:
    """Return the results of a formula by input, for the differentiable inputs that it has a value for."""
    named = zip(sample.point.inputs, many(slots), strict=True)
    return {
        name: _fit(sample, value, sample.vectors[name].shape)
        for name, value in named
        if value is not None and name in sample.vectors
    }


def named_outputs(sample: Sample, values: Any) -> dict[str, Array]:
    """Return the results of a first surrogate by output."""
    named = zip(sample.point.op.outputs, values, strict=True)
    return {slot.name: _fit(sample, value, sample.values["outputs", slot.name].shape) for slot, value in named}


def _fit(sample: Sample, value: Any, shape: tuple[int, ...]) -> Array:
    """Return a result as numbers of a shape; raise for anything else. The rows of an elementwise op vary in shape."""
    numbers = np.asarray(value, np.float64)
    return numbers if sample.is_elementwise else np.broadcast_to(numbers, shape)
