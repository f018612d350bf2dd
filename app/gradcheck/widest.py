"""Points in the widest float dtype of their op, where numeric derivatives have most digits."""

from dataclasses import replace

import numpy as np

from app.autodiff.binding import moved
from app.autodiff.derivatives import output_shapes
from app.autodiff.point import Arrays, Point
from app.gradcheck import rounding
from app.tensors.dtypes import DTYPES
from ops import FLOATS


def in_widest(point: Point) -> Point:
    """Return a point in the widest float dtype of its op, in which its numbers are exact."""
    widest = min((dtype for dtype in point.op.dtypes if dtype in FLOATS), key=rounding.eps)
    spec = replace(point.spec, dtype=widest)
    inputs = {name: x.astype(DTYPES[spec.inputs.dtypes[name]].numpy) for name, x in point.inputs.items()}
    return moved(replace(point, spec=spec), inputs)


def all_cotangents(point: Point, cotangents: Arrays | None) -> Arrays:
    """Return a cotangent for each differentiable output: ones if none are given, else zeros for the others."""
    to = point.spec.outputs
    dys = {
        name: (np.ones if cotangents is None else np.zeros)(shape, DTYPES[to.dtypes[name]].numpy)
        for name, shape in output_shapes(point).items()
        if name in to.differentiable
    }
    return dys | {name: dy.astype(DTYPES[to.dtypes[name]].numpy) for name, dy in (cotangents or {}).items()}
