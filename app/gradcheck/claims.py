"""Call the functions of a claim: arguments in the op's order, floats as float64; results by name."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from app.gradcheck.reference import as_float64
from app.gradcheck.sample import Sample
from ops import Array, many


def primals(sample: Sample, inputs: Mapping[str, Array]) -> list[Array]:
    """Return the op's inputs in order, those in ``inputs`` replaced."""
    return [as_float64(inputs.get(name, x)) for name, x in sample.point.inputs.items()]


def all_cotangents(sample: Sample, dys: Mapping[str, Array]) -> list[Array]:
    """Return a cotangent for every output, zeros for outputs without one."""
    outputs = [slot.name for slot in sample.point.op.outputs]
    return [
        as_float64(dys[name]) if name in dys else np.zeros(sample.values["outputs", name].shape) for name in outputs
    ]


def all_vectors(sample: Sample) -> list[Array]:
    """Return a vector for every input, zeros for inputs without one."""
    vectors = sample.vectors
    return [
        as_float64(vectors[name]) if name in vectors else np.zeros(x.shape) for name, x in sample.point.inputs.items()
    ]


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
