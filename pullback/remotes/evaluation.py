"""Evaluation of a derivative: by one request, or from the results of an earlier one."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.arrays import name_of
from pullback.calls import Pointwise
from pullback.catalogue import Slot
from pullback.dtypes import Array
from pullback.errors import OpFailed, Unprocessable
from pullback.limits import Limit
from pullback.remotes.derivatives import Derivative
from pullback.remotes.points import Point
from pullback.remotes.remote import Remote, is_differentiable
from pullback.remotes.shapes import TensorType, output_types

EXACT = ("float32", "float64")
"""In the other dtypes, a product of rounded derivatives would be much less precise than that of the service."""
MOST_BYTES = 1 << 24
"""The most bytes of the arrays of a request at many points."""


# The gradient must be linear in its cotangents, which the contract claims for the default attributes. An elementwise
# op has y, f' and f'' for each element, and all products up to second order are made from them. If the output is one
# number, the gradient is one array for each input, and every vjp is a multiple of it.
def local(p: Derivative, arrays: Sequence[Array], limit: Limit, *, batched: bool, ahead: bool) -> list[Array] | None:
    """Return the results of a derivative from a stored point, or from one that it requests.

    Returns ``None`` if the service must compute them.
    """
    if not p.path and not ahead:
        point = p.remote.points.known(arrays, limit)
        return None if point is None else point.values()
    count = len(p.remote.contract().inputs)
    inputs, directions = arrays[:count], arrays[count:]
    rule = _rule(p.remote, inputs)
    if rule is None or not rule.covers(p) or not _fit(p, directions, rule.cotangent, batched=batched):
        return None
    point = p.remote.points.get(inputs, lambda: rule.request(inputs, limit), limit)
    if not p.path:
        return point.values()
    if len(p.path) > len(point.derivatives):
        return None
    with np.errstate(all="ignore"):
        found = [np.asarray(x) for x in rule.products(p, point, directions)]
    # The op may select where a product has NaN: 0 times infinity. A finite product has only finite factors.
    return found if all(np.isfinite(x).all() for x in found) else None


class _Elementwise:
    """The products of an elementwise op with one input and one output."""

    def __init__(self, remote: Remote, inputs: Sequence[Array]) -> None:
        """Set the op."""
        self._remote = remote
        self.cotangent = TensorType(inputs[0].shape, inputs[0].dtype)

    def covers(self, p: Derivative) -> bool:
        """Report whether there are products for an order."""
        return len(p.path) <= self._remote.elementwise_orders

    def request(self, inputs: Sequence[Array], limit: Limit) -> Point:
        """Request y, f' and f''; if f'' is refused, y and f'. A refusal may be that of this point alone."""
        second = self._remote.second_order
        if self._remote.elementwise_orders == 1 or not second.is_due():
            return self._requested(inputs, 1, limit)
        try:
            point = self._requested(inputs, 2, limit)
        except (OpFailed, Unprocessable):
            point = self._requested(inputs, 1, limit)
            second.failed()
        else:
            second.succeeded()
        return point

    def _requested(self, inputs: Sequence[Array], order: int, limit: Limit) -> Point:
        remote, contract = self._remote, self._remote.contract()
        x, y = contract.inputs[0].name, contract.outputs[0].name
        found = remote.client.op(remote.name).gradients({x: inputs[0]}, order=order, **remote.options(limit))
        return Point((found.outputs[y],), tuple((_or_zeros(level[x], inputs[0]),) for level in found.gradients))

    def products(self, p: Derivative, point: Point, directions: Sequence[Array]) -> list[Any]:
        """Return the results of ``p``; at first order a vjp and a jvp are the same. A leading axis broadcasts."""
        (first,), d = point.derivatives[0], directions[0]
        if len(p.path) == 1:
            return [first * d]
        (second,) = point.derivatives[1]
        if p.path[-1] == "vjp":
            return [second * d * directions[1], first * directions[1]]
        return [second * d * directions[1] + first * directions[2]]


class _OneNumber:
    """The products of an op whose only differentiable output is one number."""

    def __init__(self, remote: Remote, cotangent: TensorType) -> None:
        """Set the op."""
        self._remote = remote
        self.cotangent = cotangent

    def covers(self, p: Derivative) -> bool:
        """Report whether it is the value or the vjp."""
        return p.path in ((), ("vjp",))

    def request(self, inputs: Sequence[Array], limit: Limit) -> Point:
        """Request the outputs along with the gradient."""
        remote, contract = self._remote, self._remote.contract()
        named = {slot.name: x for slot, x in zip(contract.inputs, inputs, strict=True)}
        found = remote.client.op(remote.name).vjp(named, outputs=True, **remote.options(limit))
        live = [slot.name for slot in contract.inputs if is_differentiable(slot)]
        gradient = tuple(_or_zeros(found.gradients.get(name), named[name]) for name in live)
        return Point(tuple(found.outputs[slot.name] for slot in contract.outputs), (gradient,))

    def products(self, p: Derivative, point: Point, directions: Sequence[Array]) -> list[Any]:
        """Return the multiples of the gradient."""
        (dy,) = directions
        factors = dy.reshape(dy.shape[: dy.ndim - len(self.cotangent.shape)])
        return [np.multiply.outer(factors, g) for g in point.derivatives[0]]


def _rule(remote: Remote, inputs: Sequence[Array]) -> _Elementwise | _OneNumber | None:
    if not remote.is_linear or not all(map(_is_exact, remote.contract().inputs, inputs)):
        return None
    if remote.elementwise_orders:
        return _Elementwise(remote, inputs)
    contract = remote.contract()
    live = [i for i, slot in enumerate(contract.outputs) if is_differentiable(slot)]
    if len(live) != 1:
        return None
    output = output_types(contract, remote.attrs, [TensorType.of(x) for x in inputs])[live[0]]
    return _OneNumber(remote, output) if output.size == 1 and name_of(output.dtype) in EXACT else None


def _fit(p: Derivative, directions: Sequence[Array], cotangent: TensorType, *, batched: bool) -> bool:
    """Report whether the directions have the right shapes and dtypes; if not, the service says so."""
    shapes = [x.shape for x in directions]
    if batched:
        count = p.arity - p.parent.arity
        shapes[-count:] = [shape[1:] for shape in shapes[-count:]]
    return shapes == [cotangent.shape] * len(shapes) and all(x.dtype == cotangent.dtype for x in directions)


def _is_exact(slot: Slot, array: Array) -> bool:
    """Report whether an input has the dtype of exact products; one without derivatives may have integers."""
    return name_of(array.dtype) in EXACT or (array.dtype.kind in "iub" and not is_differentiable(slot))


def _or_zeros(derivative: Any, like: Array) -> Array:
    return np.zeros_like(like) if derivative is None else derivative


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
    found = local(p, arrays, limit, batched=batched, ahead=ahead)
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
    rows = local(p.vjp, [*arrays, *cotangents], limit, batched=True, ahead=False)
    outputs = None if rows is None else local(p, arrays, limit, batched=False, ahead=True)
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
