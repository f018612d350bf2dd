"""Valid rows of one shape, for the trial of rows: drawn as the author declares, or near those of a request."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.autodiff.derived import origin
from app.autodiff.draws import Dimensions, draw, draw_from_domains
from app.autodiff.padded_rows import PaddedRows
from app.autodiff.point import Point
from ops import Array

# How often an author's function is asked for a point of the right shape.
DRAWS = 24


@dataclass(frozen=True)
class RowDraws:
    """Draws rows for a packing; shared inputs, and rows near those of a request, are from ``leaves`` at ``point``."""

    rows: PaddedRows
    point: Point
    leaves: Sequence[Array]
    rng: np.random.Generator

    def accepts(self, leaves: Sequence[Array]) -> bool:
        """Return whether the op's own function for that accepts the inputs of a call."""
        op = self.rows.program.op
        inputs = {slot.name: x for slot, x in zip(op.inputs, leaves, strict=False)}
        try:
            if op.validate is not None:
                op.validate(inputs, self.point.spec.attrs)
        except Exception:  # noqa: BLE001 - most are InvalidInput, but an author's function may raise anything
            return False
        return True

    def valid_rows(self, count: int) -> list[list[Array]]:
        """Return up to ``count`` valid rows, each with its part of all inputs; of a shared input, that is the whole."""
        found, units = list[list[Array]](), self.rows.units
        for drawn in self._candidates(count):
            columns = [self._as_rows(i, drawn) for i, _ in enumerate(self.rows.program.op.inputs)]
            sizes = {len(x) for x, unit in zip(columns, units, strict=False) if x is not None and unit is not None}
            for row in range(sizes.pop() if len(sizes) == 1 else 0):
                cut = list[Array]()
                for x, unit, leaf in zip(columns, units, self.leaves, strict=False):
                    if x is None:  # a direction of a derived op
                        cut.append(self.rng.standard_normal((1, *(unit or ()))).astype(leaf.dtype))
                    else:
                        cut.append(x if unit is None else x[row : row + 1])
                if len(found) < count and self.accepts(cut):
                    found.append(cut)
            if len(found) == count:
                break
        return found

    def _as_rows(self, i: int, drawn: Mapping[str, Any]) -> Array | None:
        """Return the rows of an input in a point, none if they have another shape; ``None`` if it is not in the point.

        A shared input is that of the request.
        """
        leaf, unit, name = self.leaves[i], self.rows.units[i], self.rows.program.leaf_names[i]
        if unit is None:
            return leaf
        if name not in drawn:
            return None
        x = np.asarray(drawn[name])
        has_shape = x.ndim >= len(unit) and x.shape[x.ndim - len(unit) :] == unit
        with np.errstate(over="ignore"):
            return x.astype(leaf.dtype).reshape(-1, *unit) if has_shape else np.empty((0, *unit), leaf.dtype)

    def _candidates(self, count: int) -> Iterator[Mapping[str, Any]]:
        """Yield points: drawn ones, those of the examples, and those near the request's, which have the right shape."""
        (op, _), spec = origin(self.rows.program.op), self.point.spec
        attrs, dims = spec.attrs.model_dump(), self.point.dims.items()
        sizes: Dimensions = {name: size if isinstance(size, tuple) else (size,) for name, size in dims}
        sizes = {**sizes, str(op.outputs[0].shape[0]): (count,)}
        for _ in range(DRAWS if op.sample is not None else 0):
            yield draw(op, attrs, spec.dtype, self.rng)
        yield from (example.inputs for example in op.examples)
        for _ in range(2):
            yield draw_from_domains(op, spec.dtype, self.rng, sizes)
        own = dict(zip(self.rows.program.leaf_names, self.leaves, strict=True))
        for _ in range(count):
            changed = dict[str, Array]()
            for slot in op.inputs:
                x = own[slot.name]
                factor = 1 if x.dtype.kind in "iub" else self.rng.uniform(0.9, 1.1, x.shape)
                changed[slot.name] = x * factor
            yield changed
        yield own
