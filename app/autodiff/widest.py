"""Points in the widest float dtype of their op, where numbers have most digits."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from app.autodiff.binding import moved
from app.autodiff.derivatives import output_shapes
from app.autodiff.point import Arrays, Point, Spec
from app.tensors.dtypes import DTYPES
from ops import FLOATS, Array
from pullback.gradcheck.floats import eps


def in_widest(point: Point) -> Point:
    """Return a point in the widest float dtype of its op, in which its numbers are exact."""
    spec = replace(point.spec, dtype=widest(point.spec))
    return moved(replace(point, spec=spec), typed(point.inputs, spec.inputs.dtypes))


def widest(spec: Spec) -> str:
    """Return the widest float dtype of an op."""
    return min((dtype for dtype in spec.op.dtypes if dtype in FLOATS), key=eps)


def typed(arrays: Arrays, dtypes: Mapping[str, str]) -> dict[str, Array]:
    """Return arrays in these dtypes, by name."""
    return {name: x.astype(DTYPES[dtypes[name]].numpy) for name, x in arrays.items()}


def all_cotangents(point: Point, cotangents: Arrays | None) -> Arrays:
    """Return a cotangent for each differentiable output: ones if none are given, else zeros for the others."""
    to = point.spec.outputs
    dys = {
        name: to.ones(name, shape) if cotangents is None else np.zeros(shape, DTYPES[to.dtypes[name]].numpy)
        for name, shape in output_shapes(point).items()
        if name in to.differentiable
    }
    return dys | typed(cotangents or {}, to.dtypes)
