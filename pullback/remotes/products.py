"""Products with the derivatives at a point, which need no further request.

The gradient must be linear in its cotangents, which the contract claims for the default attributes. An elementwise op
has y, f' and f'' for each element, and all products up to second order are made from them. If the output is one number,
the gradient is one array for each input, and every vjp is a multiple of it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.arrays import name_of
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
