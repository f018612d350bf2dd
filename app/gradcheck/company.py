"""Rows in company: a row has the same results in every batch, whatever rows are beside it."""

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from app.autodiff.binding import moved
from app.autodiff.draws import draw
from app.autodiff.point import Arrays, Point
from app.errors import OpFailed, Unprocessable
from app.gradcheck.reproduce import calls
from app.gradcheck.sample import Sample, sample_at
from app.gradcheck.sizes import BLOCKS
from app.gradcheck.target import Target
from app.runtime.modes import Key
from ops import Array, Mode
from pullback.gradcheck.number_comparison import Comparison

# The rows of the whole batch, those of the batches that are compared bit for bit, and those of the parts.
WHOLE, FIXED, PARTS = 65, 16, (1, 2, 4, 15, 16, 17, 33, 64)
# The most multiply-adds of a part that is longer than the whole batch, whose rows it has again and again.
MOST_COST = 1 << 21
# The most points that are drawn to find rows of one shape.
DRAWS = 32
BAD_NUMBERS = (math.nan, math.inf, -math.inf)
BITWISE: tuple[Mode, ...] = ("graph", "xla")
"""The modes in which the service joins rows."""


@dataclass(frozen=True, eq=False)
class Company:
    """Many rows of an op, drawn from its points, as one ``sample``; inputs that all rows use are in it once."""

    target: Target
    sample: Sample

    @classmethod
    def of(cls, target: Target) -> "Company":
        """Return rows of the shape that those of one of the target's points have. Raises ``Unprocessable``."""
        # The last point is drawn, so that others that are drawn have its shape; the author may draw any shapes.
        points = [sample.point for sample in target.samples]
        rng, first = target.rng("company"), points[-1]
        if target.op.sample is not None:
            first = max(points, key=lambda point: point.size)
        found = [_rows(first)]
        draws = DRAWS if target.inputs is None and target.batching != "elementwise" else 0
        for _ in range(draws):
            if sum(len(next(iter(rows.values()))) for rows in found) >= WHOLE:
                break
            with suppress(Unprocessable):
                drawn = draw(target.op, target.attrs, target.widest, rng)
                rows = _rows(target.bind({**drawn, **_shared(first)}, target.widest))
                if all(x.shape[1:] == found[0][name].shape[1:] for name, x in rows.items()):
                    found.append(rows)
        pool = {name: np.concatenate([rows[name] for rows in found]) for name in found[0]}
        chosen = {name: x[np.arange(WHOLE) % len(x)] for name, x in pool.items()}
        point = target.bind({**chosen, **_shared(first)}, target.widest)
        return cls(target, sample_at(point, rng, target.magnitudes, last=target.last))

    def compare(self, comparison: Comparison) -> None:
        """Compare parts of many sizes and orders, and rows beside NaN and infinity, with the same rows of the whole."""
        rng = self.target.rng("parts")
        orders = [rng.permutation(WHOLE)[:count] for count in (*PARTS, WHOLE)]
        for order in orders:
            self._add(comparison, self._part(order), order, np.arange(len(order)))
        for part in self._beside_bad_numbers():
            self._add(comparison, part, np.arange(FIXED), np.arange(0, FIXED, 2))
        for order, part in self._of_blocks(rng):
            self._add(comparison, part, order, np.arange(len(order)))
        self._add_sums(comparison)

    def modes_that_change_bits(self) -> Iterator[Mode]:
        """Yield the modes in which the bits of a row depend on its position or its neighbours, in a batch of 16."""
        rng, spec = self.target.rng("bits"), self.sample.point.spec
        for mode in BITWISE:
            # The service pads elementwise ops for XLA, and check modes compares the bits.
            if mode not in self.target.modes or (mode == "xla" and spec.batching == "elementwise"):
                continue
            alone = np.concatenate([[0], rng.permutation(np.arange(1, WHOLE))[: FIXED - 1]])
            others = rng.permutation(np.arange(1, WHOLE))[:FIXED]
            expected = self._part(alone, mode).values
            for at in (0, 1, FIXED - 1):
                order = others.copy()
                order[at] = 0
                found = self._part(order, mode).values
                if any(found[key][at].tobytes() != expected[key][0].tobytes() for key in self._keys):
                    yield mode
                    break

    @property
    def is_deterministic(self) -> bool:
        """Whether a second evaluation gives the same bits: noise would hide what one row does to another."""
        again = self.sample.again().values
        return all(again[key].tobytes() == value.tobytes() for key, value in self.sample.values.items())

    @property
    def has_equal_rows(self) -> bool:
        """Whether too few rows differ for a comparison to prove anything."""
        rows = [x for name, x in self.sample.point.inputs.items() if name not in self.target.op.shared]
        return all(len({row.tobytes() for row in x}) < PARTS[1] + 1 for x in rows)

    @property
    def _keys(self) -> list[Key]:
        """The values that have rows; the cotangents of shared inputs are sums over them."""
        return [key for key in self.sample.values if key[1] not in self.target.op.shared]

    def _part(self, order: Array, mode: Mode = "graph") -> Sample:
        point, shared = self.sample.point, self.target.op.shared
        inputs, dys, vectors = (
            {name: x if name in shared else x[order] for name, x in named.items()}
            for named in (point.inputs, self.sample.cotangents, self.sample.vectors)
        )
        moved_point = moved(replace(point, spec=replace(point.spec, mode=mode)), inputs)
        return Sample(moved_point, dys, vectors, last=self.sample.last)

    def _beside_bad_numbers(self) -> Iterator[Sample]:
        """Yield 16 rows with NaN or infinity in every other one, where the op accepts that."""
        part = self._part(np.arange(FIXED))
        for number in BAD_NUMBERS:
            inputs = {name: x.copy() for name, x in part.point.inputs.items()}
            for name in part.vectors.keys() - set(self.target.op.shared):
                inputs[name][1::2] = number
            with suppress(Unprocessable, OpFailed):
                point = self.target.bind(inputs, self.target.widest)
                bad = replace(part, point=point)
                _ = bad.values
                yield bad

    def _of_blocks(self, rng: np.random.Generator) -> Iterator[tuple[Array, Sample]]:
        """Yield parts of as many rows as a block has, or nearly, with their order, where the op accepts that."""
        for count in chain(*BLOCKS):
            if self.sample.point.cost / WHOLE * count > MOST_COST:
                return
            order = np.resize(rng.permutation(WHOLE), count)
            part = self._part(order)
            with suppress(Unprocessable, OpFailed):
                checked = replace(part, point=self.target.bind(part.point.inputs, self.target.widest))
                _ = checked.values
                yield order, checked

    def _add(self, comparison: Comparison, part: Sample, order: Array, at: Array) -> None:
        """Compare the rows ``at`` of a part, in which they have this ``order``, with those of the whole."""
        for key in self._keys:
            value, expected = part.values[key][at], self.sample.values[key][order[at]]
            if np.array_equal(value, expected, equal_nan=True):
                bar = np.zeros(())
            else:
                # Both values round.
                bar = self.sample.allowed(key, self.target.widest, value, expected, times=2, at=order[at])
            some = calls(part, key, needs_all=True)
            comparison.add(value, expected, bar, key=key, calls=some, index=_index_of(value, at))

    def _add_sums(self, comparison: Comparison) -> None:
        """Compare the sums over two parts with those over the whole: the cotangents of the inputs that all rows use."""
        sums = [key for key in self.sample.values if key[0] == "gradients" and key[1] in self.target.op.shared]
        parts = [self._part(rows) for rows in np.split(np.arange(WHOLE), [FIXED])] if sums else []
        for key in sums:
            total, whole = np.asarray(sum(part.values[key] for part in parts)), self.sample.values[key]
            bar = self.sample.allowed(key, self.target.widest, total, whole, times=4)
            comparison.add(total, whole, bar, key=key)


def _shared(point: Point) -> Arrays:
    return {name: point.inputs[name] for name in point.op.shared}


def _rows(point: Point) -> dict[str, Array]:
    """Return the inputs that have rows, with one axis of rows."""
    rows = {name: x for name, x in point.inputs.items() if name not in point.op.shared}
    if point.spec.batching == "elementwise":
        return {name: x.ravel() for name, x in rows.items()}
    if point.spec.batching == "leading_axis":
        return rows
    axes = point.dims["..."]
    rank = len(axes) if isinstance(axes, tuple) else 1
    return {name: x.reshape(-1, *x.shape[rank:]) for name, x in rows.items()}


def _index_of(value: Array, at: Array) -> Callable[[int], tuple[int, ...]]:
    def index(i: int) -> tuple[int, ...]:
        row, *others = np.unravel_index(i, value.shape)
        return (int(at[row]), *map(int, others))

    return index
