"""Evaluation of a derivative: by one request, or from the results of an earlier one."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.arrays import name_of
from pullback.calls import Pointwise
from pullback.dtypes import Array
from pullback.limits import Limit
from pullback.remotes import products
from pullback.remotes.derivatives import Derivative
from pullback.remotes.shapes import TensorType

MOST_BYTES = 1 << 24
"""The most bytes of the arrays of a request at many points."""


def evaluate(
    p: Derivative,
    arrays: Sequence[Array],
    *,
    batched: bool = False,
    points: bool = False,
    ahead: bool = False,
    limit: Limit | None = None,
) -> list[Array]:
    """Return the results of a derivative at its inputs, as arrays that the caller owns.

    If ``batched``, the directions of the last derivation have a leading axis, and so have the results. With ``points``,
    all arrays and results have one, before that. ``ahead`` announces that derivatives at this point will follow. A
    result that depends on none of the directions is zero. All requests together have the deadline of the op, or the
    ``limit`` of a caller. Raises the errors of the client.
    """
    limit = limit or Limit(p.remote.deadline)
    arrays = p.cast(arrays)
    if (batched or points) and not arrays[-1].size and 0 in arrays[-1].shape[: batched + points]:
        types = [TensorType.of(array) for array in arrays]
        return [np.zeros(t.shape, t.dtype) for t in p.types(types, batched=batched, points=points)]
    if points:
        return _at_points(p, arrays, limit, batched=batched)
    found = products.local(p, arrays, limit, batched=batched, ahead=ahead)
    return _requested(p, arrays, limit, batched=batched, ahead=ahead) if found is None else found


def _at_points(p: Derivative, arrays: Sequence[Array], limit: Limit, *, batched: bool) -> list[Array]:
    """Return the results at points, with requests of bounded size."""
    count, size = len(arrays[0]), sum(array.nbytes for array in arrays)
    each = max(1, count * MOST_BYTES // max(size, 1))
    parts = [
        _requested(p, [x[i : i + each] for x in arrays], limit, batched=batched, points=True)
        for i in range(0, count, each)
    ]
    return parts[0] if len(parts) == 1 else [np.concatenate(found) for found in zip(*parts, strict=True)]


def _requested(
    p: Derivative,
    arrays: Sequence[Array],
    limit: Limit,
    *,
    batched: bool,
    points: bool = False,
    ahead: bool = False,
) -> list[Array]:
    of, passes = p.parent, p.remote.forward_passes
    contract = p.remote.contract(of.path, limit)
    options: Pointwise = {**p.remote.options(limit)}
    if points:
        options["points"] = True
    op = p.remote.client.op(contract.name)
    inputs = {slot.name: x for slot, x in zip(contract.inputs, arrays, strict=False)}
    if not p.path:
        # The client's default for an op that takes floats and integers is a float.
        pairs = zip(arrays, contract.inputs, strict=True)
        is_variable = len(contract.dtypes) > 1
        kinds = (name_of(x.dtype) for x, slot in pairs if is_variable and tuple(slot.dtypes) == contract.dtypes)
        variable = next(kinds, None)
        given: Pointwise = {**options, "dtype": variable}
        if ahead and p.remote.runs_in_graphs and passes.are_slow(arrays):
            outputs = passes.outputs(arrays, op.linearize(inputs, **given))
        else:
            outputs = op.forward(inputs, **given).outputs
        return [outputs[slot.name] for slot in contract.outputs]
    directions = arrays[of.arity :]
    by_input = [contract.inputs[i].name for i in of.differentiable_inputs]
    by_output = [contract.outputs[i].name for i in of.differentiable_outputs]
    results: dict[str, Any]
    at = passes.find(arrays[: of.arity]) if not of.path and not points else None
    if p.path[-1] == "vjp":
        cotangents = dict(zip(by_output, directions, strict=True))
        if at is None:
            found = op.vjp(inputs, cotangents=cotangents, batched=batched, **options)
        else:
            found = at.vjp(cotangents, batched=batched)
        names, results = by_input, found.gradients
    else:
        tangents = dict(zip(by_input, directions, strict=True))
        if at is None:
            pushed = op.jvp(inputs, tangents=tangents, batched=batched, **options)
        else:
            pushed = at.jvp(tangents, batched=batched)
        names, results = by_output, pushed.tangents
    return _complete(p, arrays, [results.get(name) for name in names], batched=batched, points=points)


def evaluate_with_rows(
    p: Derivative, arrays: Sequence[Array], cotangents: Sequence[Array], limit: Limit
) -> tuple[list[Array], list[Array]]:
    """Return the results of a derivative, and those of its vjp at cotangents with a leading axis, by one request."""
    rows = products.local(p.vjp, [*arrays, *cotangents], limit, batched=True, ahead=False)
    outputs = None if rows is None else products.local(p, arrays, limit, batched=False, ahead=True)
    if rows is not None and outputs is not None:
        return outputs, rows
    contract = p.remote.contract(p.path, limit)
    inputs = {slot.name: x for slot, x in zip(contract.inputs, arrays, strict=True)}
    seeds = {contract.outputs[i].name: x for i, x in zip(p.differentiable_outputs, cotangents, strict=True)}
    op = p.remote.client.op(contract.name)
    found = op.vjp(inputs, cotangents=seeds, outputs=True, batched=True, **p.remote.options(limit))
    outputs = [found.outputs.get(slot.name) for slot in contract.outputs]
    rows = [found.gradients.get(contract.inputs[i].name) for i in p.differentiable_inputs]
    return _complete(p, arrays, outputs), _complete(p.vjp, [*arrays, *cotangents], rows, batched=True)


def _complete(
    p: Derivative,
    arrays: Sequence[Array],
    results: Sequence[Array | None],
    *,
    batched: bool = False,
    points: bool = False,
) -> list[Array]:
    """Return the results of a derivative, with zeros for those that depend on no direction."""
    found = [x for x in results if x is not None]
    if len(found) == len(results):
        return found
    types = p.types([TensorType.of(array) for array in arrays], batched=batched, points=points)
    return [np.zeros(t.shape, t.dtype) if x is None else x for x, t in zip(results, types, strict=True)]
