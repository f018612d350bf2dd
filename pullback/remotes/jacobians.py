"""An op's outputs and their Jacobian at a point, for solvers that want matrices: by one request where it can be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, TypeAlias

import numpy as np

from pullback.dtypes import Array
from pullback.limits import Limit
from pullback.remotes.derivatives import Derivative
from pullback.remotes.evaluation import evaluate, evaluate_with_rows
from pullback.remotes.points import Point, Points
from pullback.remotes.remote import Remote
from pullback.remotes.shapes import ELLIPSIS, Shape, TensorType, input_types, refuse_complex

Pair: TypeAlias = tuple[int, int]
"""The positions of an output and an input."""
FEW = 64
"""Up to how many rows, or columns, a Jacobian is requested in place of a product with it."""
FAR = 4
"""How many times fewer the columns are than the rows where the Jacobian is computed by columns."""


@dataclass(frozen=True)
class Pattern:
    """The entries of a block that may differ from 0, by row, and by column in each row."""

    shape: tuple[int, int]
    rows: Array
    columns: Array

    @property
    def is_dense(self) -> bool:
        """Whether it has all entries."""
        return self.rows.size == prod(self.shape)

    def equals(self, other: "Pattern") -> bool:
        """Report whether two have the same entries."""
        return np.array_equal(self.rows, other.rows) and np.array_equal(self.columns, other.columns)


class Jacobians:
    """The outputs of a derivative and their Jacobian, by point. Threads may share them.

    Rows and columns are elements of the outputs and of the inputs, in row-major order. Where rows of the arrays are
    independent, as those of an elementwise op are, the entries between different ones are 0, and left out.
    """

    def __init__(self, p: Derivative, inputs: Sequence[TensorType], parent: "Jacobians | None" = None) -> None:
        """Take the derivative and the types of its inputs; raises ``BadArgument`` if they do not match the contract.

        ``parent`` is what the last derivation derives.
        """
        self.p, self.inputs, self.outputs = p, list(inputs), p.types(inputs)
        self._parent = parent
        self._values, self._points = Points(), Points()
        self._is_wanted = False
        self._lead = _independent(p, self.inputs, self.outputs)

    @classmethod
    def of(cls, remote: Remote, shapes: Mapping[str, Any]) -> "Jacobians":
        """Return those of an op whose inputs have these shapes; optional inputs without one are not sent."""
        absent = [slot.name for slot in remote.contract().inputs if slot.optional and slot.name not in shapes]
        remote = remote.without(absent) if absent else remote
        refuse_complex(remote.contract(), "solvers")
        return cls(Derivative(remote), input_types(remote.contract(), shapes))

    @cached_property
    def vjp(self) -> "Jacobians":
        """Those of the vjp: the inputs are followed by cotangents of the differentiable outputs."""
        directions = [self.outputs[o] for o in self.p.differentiable_outputs]
        return Jacobians(self.p.vjp, [*self.inputs, *directions], self)

    @cached_property
    def jvp(self) -> "Jacobians":
        """Those of the jvp: the inputs are followed by tangents of the differentiable inputs."""
        directions = [self.inputs[i] for i in self.p.differentiable_inputs]
        return Jacobians(self.p.jvp, [*self.inputs, *directions], self)

    def values(self, arrays: Sequence[Array]) -> list[Array]:
        """Return the outputs; along with the Jacobian for later, if that of the last point was used.

        Products with a Jacobian of few rows or columns are formed from it.
        """
        arrays, limit = self.p.cast(arrays), Limit(self.p.remote.deadline)
        found = self._products(arrays)
        if found is not None:
            return found
        point = self._points.known(arrays, limit) or self._values.known(arrays, limit)
        if point is None:
            is_wanted, self._is_wanted = self._is_wanted, False
            get = self._with_rows if is_wanted and not self._is_by_columns else self._alone
            point = get(arrays, limit)
        return point.values()

    def entries(self, arrays: Sequence[Array]) -> dict[Pair, Array]:
        """Return the entries of each block, in the order of ``patterns``."""
        arrays, limit = self.p.cast(arrays), Limit(self.p.remote.deadline)
        if not any(pattern.rows.size for pattern in self.patterns.values()):
            return {pair: np.zeros(0) for pair in self.patterns}
        self._is_wanted = True
        get = self._with_columns if self._is_by_columns else self._with_rows
        (found,) = get(arrays, limit).derivatives
        return dict(zip(self.patterns, found, strict=True))

    @cached_property
    def patterns(self) -> dict[Pair, Pattern]:
        """The pattern of each block; outputs and inputs that are not differentiable have none."""
        pairs = [(o, i) for o in self.p.differentiable_outputs for i in self.p.differentiable_inputs]
        return {(o, i): self._pattern(self.outputs[o], self.inputs[i]) for o, i in pairs}

    def _pattern(self, output: TensorType, given: TensorType) -> Pattern:
        count = prod(self._lead)
        m, n = self._width(output), self._width(given)
        lead, rows, columns = np.meshgrid(np.arange(count), np.arange(m), np.arange(n), indexing="ij")
        return Pattern((output.size, given.size), (lead * m + rows).ravel(), (lead * n + columns).ravel())

    def _width(self, t: TensorType) -> int:
        """Return the number of elements that a row has."""
        return prod(t.shape[len(self._lead) :])

    @cached_property
    def _is_by_columns(self) -> bool:
        """Whether there are far fewer columns than rows, and the derivative has a jvp: the outputs need a request."""
        rows, columns = self._counts
        return FAR * columns < rows and self.p.remote.is_linear

    @property
    def _counts(self) -> tuple[int, int]:
        """How many directions it takes by rows, and by columns."""
        rows = sum(self._width(self.outputs[o]) for o in self.p.differentiable_outputs)
        return rows, sum(self._width(self.inputs[i]) for i in self.p.differentiable_inputs)

    def _products(self, arrays: Sequence[Array]) -> list[Array] | None:
        of = self._parent
        if of is None or not self.p.remote.is_linear or of._counts[of._is_by_columns] > FEW:
            return None
        count = of.p.arity
        directions, is_vjp = arrays[count:], self.p.path[-1] == "vjp"
        seeded, reached = of.p.differentiable_inputs, of.p.differentiable_outputs
        if is_vjp:
            seeded, reached = reached, seeded
        sums = [np.zeros(t.size) for t in self.outputs]
        with np.errstate(all="ignore"):
            for (o, i), entries in of.entries(arrays[:count]).items():
                pattern = of.patterns[o, i]
                start, end = (pattern.rows, pattern.columns) if is_vjp else (pattern.columns, pattern.rows)
                k, at = (seeded.index(o), reached.index(i)) if is_vjp else (seeded.index(i), reached.index(o))
                sums[at] += np.bincount(end, entries * directions[k].ravel()[start], sums[at].size)
        # The op may select where a product has NaN: 0 times infinity.
        if not all(np.isfinite(x).all() for x in sums):
            return None
        return [x.reshape(t.shape).astype(t.dtype) for x, t in zip(sums, self.outputs, strict=True)]

    def _alone(self, arrays: Sequence[Array], limit: Limit) -> Point:
        return self._values.get(arrays, lambda: Point(tuple(evaluate(self.p, arrays, limit=limit)), ()), limit)

    def _with_rows(self, arrays: Sequence[Array], limit: Limit) -> Point:
        def request() -> Point:
            cotangents = self._units([self.outputs[o] for o in self.p.differentiable_outputs])
            outputs, found = evaluate_with_rows(self.p, arrays, cotangents, limit)
            # The axes of a gradient: rows of a block, independent rows, columns.
            rows = [np.moveaxis(x.reshape(len(x), prod(self._lead), -1), 0, 1) for x in found]
            widths = [self._width(self.outputs[o]) for o in self.p.differentiable_outputs]
            blocks = [part for x in rows for part in np.split(x, np.cumsum(widths)[:-1], axis=1)]
            count = len(rows)
            ordered = [blocks[len(widths) * i + o] for o in range(len(widths)) for i in range(count)]
            return Point(tuple(outputs), (tuple(x.ravel() for x in ordered),))

        return self._points.get(arrays, request, limit)

    def _with_columns(self, arrays: Sequence[Array], limit: Limit) -> Point:
        def request() -> Point:
            tangents = self._units([self.inputs[i] for i in self.p.differentiable_inputs])
            found = evaluate(self.p.jvp, [*arrays, *tangents], batched=True, limit=limit)
            # The axes of a tangent: columns of a block, independent rows, rows of a block.
            columns = [np.moveaxis(x.reshape(len(x), prod(self._lead), -1), 0, 2) for x in found]
            widths = [self._width(self.inputs[i]) for i in self.p.differentiable_inputs]
            blocks = [part.ravel() for x in columns for part in np.split(x, np.cumsum(widths)[:-1], axis=2)]
            return Point(self._alone(arrays, limit).outputs, (tuple(blocks),))

        return self._points.get(arrays, request, limit)

    def _units(self, types: Sequence[TensorType]) -> list[Array]:
        """Return directions along a leading axis: each is one element, of all independent rows at once."""
        widths = [self._width(t) for t in types]
        total, first = sum(widths), 0
        directions = list[Array]()
        for t, width in zip(types, widths, strict=True):
            units = np.zeros((total, prod(self._lead), width), t.dtype)
            units[first + np.arange(width), :, np.arange(width)] = 1
            directions.append(units.reshape(total, *t.shape))
            first += width
        return directions


def _independent(p: Derivative, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> Shape:
    """Return the leading axes whose rows are independent: all arrays have them, beside inputs that all rows share."""
    if p.vjp.batching == "none":
        return ()
    with_rows = [t for i, t in enumerate(inputs) if i not in p.shared_inputs]
    if p.batching == "leading_axis":
        rank = 1
    else:
        slots = zip(p.remote.contract().inputs, inputs, strict=False)
        rank = min(len(t.shape) - len(slot.shape) + 1 if slot.shape[:1] == [ELLIPSIS] else 0 for slot, t in slots)
    lead = with_rows[0].shape[:rank]
    return lead if all(t.shape[:rank] == lead for t in [*with_rows, *outputs]) else ()
