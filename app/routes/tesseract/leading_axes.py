"""Calls of an op of fixed rank at many points: its arrays have more axes in front, as ``jax.vmap`` adds them.

tesseract-jax sends such a call for its vmap methods ``expand_dims``, where the axes of an array that is not mapped have
length 1, and ``broadcast_all``, where all arrays have axes of the same lengths. An array without them is the same at
all points: version 0.4 sends constants so. The op runs at one point after the other, so the numbers are those of as
many calls. An op of any rank, with ``...`` in a shape, has no such calls: its axes in front are its own.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np

from app.autodiff.kept import Kept
from app.autodiff.symbolic_shapes import shape_text
from app.errors import Loc, wrong
from app.requests.plans import Fields
from app.routes.tesseract.openapi import JACOBIAN, Endpoint, has_abstract_eval
from ops import Array, Op

Shape = tuple[int, ...]
Fronts = Mapping[tuple[str, str], Shape]
"""The lengths of the axes in front of each array, by its field and name."""
_DIRECTIONS = ("tangents", "cotangents")


class Points(NamedTuple):
    """A native request at many points: ``shape`` is that of the axes in front, which every array of ``fields`` has.

    ``shared`` has, for inputs that are the same along some of these axes, the axes along which their gradient is a sum.
    """

    shape: Shape
    fields: Fields
    shared: Mapping[str, tuple[int, ...]]

    def summed(self, arrays: dict[str, Array]) -> dict[str, Array]:
        """Return the arrays of a response, with sums for the gradients of shared inputs."""
        sums = {name: arrays[name].sum(axes, np.float64, keepdims=True) for name, axes in self.shared.items()}
        return arrays | {name: x.astype(arrays[name].dtype) for name, x in sums.items()}


def points_of(op: Op, endpoint: Endpoint, fields: Fields) -> Points | None:
    """Return the points of a native request, ``None`` for a request at one point.

    Raises ``Unprocessable`` for arrays whose axes in front do not fit each other.
    """
    ranks = _ranks(op)
    if ranks is None:
        return None
    inputs: Mapping[str, Array] = fields["inputs"]
    axes = max(array.ndim - ranks[name] for name, array in inputs.items())
    if axes <= 0:
        return None
    _check_support(op, endpoint, axes)
    fronts = {("inputs", name): _front(x, ranks[name], (0, axes), ("inputs", name)) for name, x in inputs.items()}
    directions = {field: fields[field] for field in _DIRECTIONS if field in fields}
    for field, arrays in directions.items():
        fronts |= {(field, name): _front(x, ranks[name], (axes,), (field, name)) for name, x in arrays.items()}
    shape = _common(fronts)
    whole = {
        field: {name: _broadcast(array, fronts[field, name], shape) for name, array in arrays.items()}
        for field, arrays in {"inputs": inputs, **directions}.items()
    }
    shared = _shared(fields["wrt"], fronts, shape) if "cotangents" in fields else {}
    return Points(shape, {**fields, **whole}, shared)


@Kept
def _ranks(op: Op) -> Mapping[str, int] | None:
    """Return the rank of every input and output, ``None`` for an op with an input of any rank."""
    if any("..." in slot.shape for slot in op.inputs):
        return None
    return {slot.name: len(slot.shown_shape) for slot in (*op.inputs, *op.outputs)}


def _check_support(op: Op, endpoint: Endpoint, axes: int) -> None:
    """Raise ``Unprocessable`` unless the results at many points can be stacked."""
    expected = ", ".join(f"{slot.name} of shape {shape_text(slot.shown_shape)}" for slot in op.inputs)
    got = f"{axes} more axes"
    if endpoint is JACOBIAN:
        raise wrong(("inputs",), "a Jacobian has one point", expected=expected, got=got)
    if not has_abstract_eval(op):
        message = "the shapes of the outputs depend on values, so a call has one point"
        raise wrong(("inputs",), message, expected=expected, got=got)


def _front(array: Array, rank: int, allowed: tuple[int, ...], loc: Loc) -> Shape:
    """Return the lengths of the axes in front of an array's own."""
    if array.ndim - rank not in allowed:
        expected = " or ".join(f"rank {rank + axes}" for axes in allowed)
        message = "the arrays have different numbers of axes in front"
        raise wrong(loc, message, expected=expected, got=f"shape {list(array.shape)}")
    return array.shape[: array.ndim - rank]


def _common(fronts: Fronts) -> Shape:
    """Return the shape of the axes in front: that of every array, except where it has an axis of length 1."""
    shape: Shape = ()
    for loc, front in fronts.items():
        try:
            shape = np.broadcast_shapes(shape, front)
        except ValueError:
            message = "the axes in front have different lengths"
            raise wrong(loc, message, expected=f"{list(shape)} or 1", got=str(list(front))) from None
    if 0 in shape:
        raise wrong(("inputs",), "no points", expected="axes in front of length at least 1", got=str(list(shape)))
    return shape


def _shared(wrt: Collection[str], fronts: Fronts, shape: Shape) -> dict[str, tuple[int, ...]]:
    """Return the axes in front along which each input is the same, for inputs with any, and every cotangent is not.

    The gradient of a sum over the points sends such a request, and expects the sum. If the cotangents are the same too,
    tesseract-jax 0.4 expects a gradient for each point in an array that has no room for it: raises ``Unprocessable``.
    """
    shared: dict[str, tuple[int, ...]] = {}
    for name in wrt:
        front = fronts["inputs", name] or (1,) * len(shape)
        axes = tuple(i for i, (length, own) in enumerate(zip(shape, front, strict=True)) if length > own)
        if any(front[i] < shape[i] for (field, _), front in fronts.items() if field == "cotangents" for i in axes):
            message = f"the points share {name} and the cotangents, so its gradient has no axis for the points"
            expected = f"axes {list(shape)} in front, as tesseract-jax sends with vmap_method='broadcast_all'"
            raise wrong(("inputs", name), message, expected=expected, got=str(list(fronts["inputs", name])))
        if axes:
            shared[name] = axes
    return shared


def _broadcast(array: Array, front: Shape, shape: Shape) -> Array:
    """Return a view of an array with the axes of all points in front."""
    own = array.shape[len(front) :]
    return np.broadcast_to(array.reshape((*front, *own) if front else (*(1,) * len(shape), *own)), (*shape, *own))
