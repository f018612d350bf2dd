"""Programs of ops whose rows are independent: rows of several evaluations in one call, padded to a fixed row count.

The last bit of a row depends on the shape of its call, because vectorised kernels process the tail of an array
differently. It does not depend on the row's position and neighbours, if the op keeps its rows apart. So every call with
rows of one shape has the same number of rows, that of a lone evaluation too, and a trial (``row_trial``) tests each
shape before its first use.
"""

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from app.autodiff.derived import origin
from app.autodiff.packing import KEPT, NotPackable, Shape
from app.autodiff.point import Dims, Point, blame_op
from app.autodiff.programs import Program
from app.runtime import modes
from app.runtime.modes import Key, KeyedArrays
from app.runtime.owned_cache import OwnedCache
from ops import Array, Mode, Op

# The most rows of a call; the most numbers of a call whose rows are vectors; the most rows of a call of other tensors.
ROWS, SHORT, SMALL_ROWS = 64, 1 << 10, 16
# The most numbers in the leaves of a call, and the most multiply-adds. Up to these, padding adds a few percent to the
# time of a lone request, from its arrival to its response.
NUMBERS, COST = 1 << 13, 1 << 14

Trial: TypeAlias = Callable[["PaddedRows"], str]
"""Returns why rows must not share a call, "" if they keep their bits whatever rows are beside them."""
# What TensorFlow raises where an op, or a Python function that it calls, refuses its values.
REFUSALS = (tf.errors.InvalidArgumentError, tf.errors.UnknownError)
_deciding = threading.Lock()
TOO_LARGE = "a row is so large that padding would take longer than a separate call"


@dataclass(eq=False)
class PaddedRows:
    """The packing of evaluations whose rows have one shape; a unit is one row, and each call has ``length`` of them.

    ``results`` has the shape of one row of each result, and of each shape of rows that the program returns for checks.
    ``why_not`` tells why such rows share no call, "" if they do, ``None`` before the ``trial``. This sets ``filler``: a
    valid row of each leaf, which fills what is left of a call. (A row of a request may take long, and so would copies.)
    ``parameters`` is the digest of those that the rows use: with others, rows may depend on each other.
    """

    program: Program
    mode: Mode
    device: str
    units: tuple[Shape | None, ...]
    length: int
    results: Mapping[Key, Shape]
    why_not: str | None = None
    filler: Sequence[Array] = ()
    parameters: str = ""
    runs_inline: dict[int, bool] = field(default_factory=dict[int, bool])
    lengths: tuple[int, ...] = field(init=False)
    most: int = field(init=False)

    def __post_init__(self) -> None:
        """Set the only length."""
        self.lengths, self.most = (self.length,), self.length

    def length_for(self, count: int) -> int:
        """Return the number of rows of a call, which is the same for any ``count`` up to it."""
        del count
        return self.length

    def pad(self, leaf: int, tensor: Array, count: int) -> None:
        """Fill the rest of a leaf in a call with valid rows."""
        tensor[count:] = self.filler[leaf]

    def try_rows(self, trial: Trial) -> None:
        """Run the trial, if none has ended.

        Of two threads that run one at the same time, the first decides: what a trial finds may depend on the load, and
        the bits of later answers must not differ from those of earlier ones.
        """
        if self.why_not is None:
            found = trial(self)
            with _deciding:
                if self.why_not is None:
                    self.why_not = found

    def run(self, members: Sequence[Sequence[Array]]) -> list[KeyedArrays]:
        """Run the program for several members, which have at most ``length`` rows together.

        All have equal number attributes, and equal inputs that all rows use. Raises ``NotPackable`` if the trial has
        not run, if rows depend on each other, or if a result has another shape; and whatever ``modes.run`` raises.
        """
        if self.why_not != "":
            raise NotPackable(self.why_not)
        axes, counts, count, leaves = list[Shape](), list[int](), 0, list[Array]()
        for index, (unit, column) in enumerate(zip(self.units, zip(*members, strict=True), strict=True)):
            if unit is None:
                leaves.append(column[0])
                continue
            if not axes:
                axes = [leaf.shape[: leaf.ndim - len(unit)] for leaf in column]
                counts = list(map(math.prod, axes))
                count = sum(counts)
            tensor = np.empty((self.length, *unit), column[0].dtype)
            np.concatenate([leaf.reshape(-1, *unit) for leaf in column], out=tensor[:count])
            self.pad(index, tensor, count)
            leaves.append(tensor)
        try:
            whole = self.run_call(leaves, count)
        except REFUSALS:
            # The op may refuse the filler, with other attributes, or beside another input that all rows use.
            if count == self.length:
                raise
            for leaf, unit in zip(leaves, self.units, strict=True):
                if unit is not None:
                    leaf[count:] = leaf[count - 1]
            whole = self.run_call(leaves, count)
        found, stop = list[KeyedArrays](), 0
        for shape, size in zip(axes, counts, strict=True):
            start, stop, results = stop, stop + size, dict[Key, Array | None]()
            for key, rows in whole.items():
                results[key] = None if rows is None else rows[start:stop].reshape((*shape, *rows.shape[1:]))
            found.append(results)
        return found

    def run_call(self, leaves: Sequence[Array], count: int) -> KeyedArrays:
        """Return the first ``count`` rows of the results for leaves of ``length`` rows; raises as ``run``."""
        kept: KeyedArrays = {}
        for key, value in modes.run(self.program, self.mode, leaves, self.device).items():
            is_check = isinstance(key[0], str)
            if value is not None and key in self.results:
                shape, expected = tuple(value.tolist()) if is_check else value.shape, (self.length, *self.results[key])
                if shape != expected:
                    raise NotPackable(f"{key[1]} has shape {list(shape)}, and {list(expected)} was expected")
            if not is_check:
                kept[key] = None if value is None else value[:count]
        return kept


# By mode, device, the shapes of rows, those of the inputs that all rows use, and the digest of the parameters.
_packings = OwnedCache[tuple[Mode, str, tuple[Shape | None, ...], tuple[Shape, ...], str], PaddedRows](KEPT)


def padded_rows(
    program: Program,
    point: Point,
    leaves: Sequence[Array],
    results: Callable[[], Mapping[Key, Shape] | None],
) -> tuple[PaddedRows, int] | None:
    """Return the packing of an evaluation with rows, and how many it has; ``None`` if it must run by itself.

    ``results`` returns the shape of one row of each result, ``None`` if only a run determines it.
    """
    axes = axes_of_rows(point)
    units, count = list[Shape | None](), 0
    for leaf, has_rows in zip(leaves, program.row_leaves, strict=True):
        units.append(leaf.shape[axes:] if has_rows else None)
        if has_rows and not count:
            count = math.prod(leaf.shape[:axes])
    if not 0 < count <= ROWS:
        return None
    shared = tuple([leaf.shape for leaf, unit in zip(leaves, units, strict=True) if unit is None])
    parameters = point.spec.parameters.digest if point.spec.held else ""
    key = point.spec.mode, point.spec.device, tuple(units), shared, parameters
    packing = _packings.get(program, key)
    if packing is None:
        shapes = results()
        if shapes is None:
            return None
        length = rows_in_call(point, (unit for unit in units if unit is not None), shapes.values())
        why_not = TOO_LARGE if length == 1 else None
        packing = PaddedRows(program, *key[:3], length, shapes, why_not, parameters=parameters)
        packing = _packings.keep(program, key, packing)
    return None if packing.why_not or count > packing.length else (packing, count)


def packings_of(op: Op) -> list[PaddedRows]:
    """Return the packings of an op that are kept, with the parameters of its page, the newest last."""
    own = ("", op.own_parameters.digest if op.own_parameters.arrays else "")
    kept = _packings.values()
    return [packing for packing in kept if packing.program.op.general is op and packing.parameters in own]


def shape_counts() -> Counter[tuple[str, bool]]:
    """Return how many shapes of rows are kept, by the registered op and whether they share calls."""
    tried = [packing for packing in _packings.values() if packing.why_not is not None]
    return Counter((origin(packing.program.op)[0].name, not packing.why_not) for packing in tried)


def axes_of_rows(point: Point) -> int:
    """Return how many axes of the tensors at a point are axes of rows."""
    axes = point.dims["..."] if point.spec.batching == "leading_axes" else (0,)
    return len(axes) if isinstance(axes, tuple) else 1


def rows_in_call(point: Point, units: Iterable[Shape], results: Iterable[Shape]) -> int:
    """Return the number of rows of a call for leaves and results with rows of these shapes; 1 for large ones."""
    op, shapes = point.spec.op, (tuple(units), tuple(results))
    numbers = max(1, *(sum(map(math.prod, side)) for side in shapes))
    length = min(SMALL_ROWS, NUMBERS // numbers)
    # Matrices may be multiplied or decomposed.
    if op.cost is None and all(len(shape) <= 1 for side in shapes for shape in side):
        length = max(length, min(ROWS, SHORT // numbers))
    if op.cost is not None:
        one: Dims = {"...": ()} if point.spec.batching == "leading_axes" else {str(op.outputs[0].shape[0]): 1}
        with blame_op(op, "cost"):
            length = min(length, COST // max(op.cost({**point.dims, **one}), 1))
    return 1 << max(length, 1).bit_length() - 1
