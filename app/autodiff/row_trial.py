"""The trial of rows: whether a row has the same bits whatever rows are beside it, tested before the first shared call.

Kernels choose an algorithm by shapes alone, so a test on random rows of a shape is strong evidence for all rows of
this shape. But an author may declare rows that depend on each other. So the trial compares, bit for bit, rows at every
position, beside other rows, beside copies of themselves, and beside NaN, infinity, 0 and numbers of extreme size. And
it compares padded rows with rows that are not padded, whose results may differ by rounding only.
"""

import logging
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf
from pydantic import ValidationError

from app.autodiff.draws import RowDraws
from app.autodiff.padded_rows import REFUSALS, PaddedRows
from app.autodiff.point import Point, number
from app.errors import DeadlinePassed, Overloaded
from app.runtime import modes
from app.runtime.modes import Key
from ops import Array

log = logging.getLogger("pullback")

# How many batches of random rows there are.
BATCHES = 6
# The most rows that are tried beside copies of themselves.
LONE = 8
# How many rows are drawn beyond those of a call, and by how many places the rows of a call are moved at most.
MORE, SHIFTS = 4, 16
# How long a row may take alone: the best of at least ``RUNS`` runs, of which the first may trace, and of further runs
# until ``MOMENT_S`` have passed. Its time is the less of the wall time, which is longer on a busy machine, and the CPU
# time of the process, which other threads share. The wall time may be longer, up to ``WAITS_S``.
LONGEST_S, WAITS_S, RUNS, MOMENT_S = 6e-3, 0.05, 2, 0.5
# A row must have another beside it.
FEWEST = 2
# Kinds of dtypes, as NumPy names them; bfloat16 is of kind V.
FLOATS, INTEGERS = "fV", "iu"
# Beside these, other rows must keep their bits. Some are special only in some dtypes.
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, 7.5, -7.5, 1e8, -1e8, 3e30, 1e-40, 1e-310, 1e300)
# Integers beside which other rows must keep their bits too, and how far further ones are above the largest drawn one:
# an index that is out of range for its row may address the next row.
SPECIAL_INTEGERS, ABOVE = (-1, 99), (1, 2, 3)
# How far a padded row may be from one that is not padded, relative to the largest number of its result, by item size.
NEAR = {2: 0.2, 4: 1e-3, 8: 1e-6}
# Rounding may be this many times as large as the change of a result when the last bits of all inputs change.
SHAKEN = 64
# Sizes of evaluations that are run as they are, to be compared.
UNPADDED = (1, 1, 1, 3)
# The values of a number attribute that are tried besides those of the request and the examples: a v + b for (a, b).
OTHER_NUMBERS = ((1.5, 0.5), (-0.75, -0.25), (0.5, 0.0))
# Errors of an evaluation that was cancelled, that needs a trace which still goes on, or that had too little memory: the
# next evaluation repeats the trial.
ENDED = (
    DeadlinePassed,
    Overloaded,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
    tf.errors.ResourceExhaustedError,
)
BESIDE = "the bits of a row depend on its position or on the rows beside it"


class _Apart(Exception):
    """A reason why rows must not share a call."""


def _is_near(value: Array, expected: Array, shaken: Array, largest: float) -> bool:
    """Return whether two results are equal up to rounding, and have NaN and infinity at the same places.

    ``shaken`` is the result for inputs whose last bits have changed: where terms cancel, it shows how large rounding
    errors may be. ``largest`` is the largest number in all results, which may have cancelled in this one.
    """
    if value.dtype.kind in "iub":
        return np.array_equal(value, expected)
    near, eps = NEAR[value.dtype.itemsize], float(np.spacing(value.dtype.type(1)))
    is_finite = np.isfinite(expected)
    if not np.array_equal(value[~is_finite], expected[~is_finite], equal_nan=True):
        return False
    wide, about, other = (x[is_finite].astype(np.float64) for x in (value, expected, shaken))
    size, noise = np.abs(about).max(initial=0.0), np.nan_to_num(np.abs(other - about)).max(initial=0.0)
    return bool((np.abs(wide - about) <= max(near * size, SHAKEN * noise, SHAKEN * eps * largest)).all())


def _largest(results: Iterable[Array]) -> float:
    """Return the largest finite magnitude."""
    return max((float(np.abs(y[np.isfinite(y)]).max(initial=0)) for y in results if y.dtype.kind == "f"), default=0.0)


@dataclass
class RowTrial:
    """The trial for the rows of an evaluation, at ``point`` with ``leaves``; it is called once, with their packing."""

    point: Point
    leaves: Sequence[Array]

    def __call__(self, rows: PaddedRows) -> str:
        """Return why such rows must not share a call, or "".

        Raises ``NotTraced``, and the error of an evaluation that is cancelled.
        """
        try:
            for numbers in self._numbers(rows):
                batches = _Batches(rows, self.point, self.leaves, numbers)
                # That of the request's own numbers, which come first.
                rows.filler = rows.filler or batches.filler
                batches.compare()
        except _Apart as reason:
            return str(reason)
        except (MemoryError, *ENDED):
            raise
        except Exception as error:
            log.debug("op %s: the trial of its rows failed", self.point.op.name, exc_info=True)
            return f"a batch of rows failed: {type(error).__name__}"
        return ""

    def _numbers(self, rows: PaddedRows) -> Iterator[Mapping[str, float]]:
        """Yield values of the number attributes: of the request, of the examples, and others that are valid."""
        op, spec = rows.program.op, self.point.spec
        names = op.attrs.number_names()
        own = {name: getattr(spec.attrs, name) for name in names}
        tried = [own]
        others = [dict(example.attrs) for example in op.examples]
        others += [{name: a * own[name] + b} for name in names for a, b in OTHER_NUMBERS]
        for values in others if names else ():
            try:
                attrs = op.attrs.model_validate({**spec.attrs.model_dump(), **values})
            except ValidationError:
                continue
            numbers = {name: getattr(attrs, name) for name in names}
            if numbers not in tried:
                tried.append(numbers)
        yield from tried


@dataclass
class _Batches:
    """Batches of rows from one pool, for one choice of the number attributes; ``bits`` has those of each row."""

    rows: PaddedRows
    point: Point
    leaves: Sequence[Array]
    numbers: Mapping[str, float]
    pool: list[Array] = field(init=False)
    bits: dict[int, bytes] = field(default_factory=dict[int, bytes])

    def __post_init__(self) -> None:
        """Draw the pool: a few rows more than a call has. Raises ``_Apart`` for too few rows, and slow ones."""
        name = f"{self.point.op.name} {self.rows.units}"
        self._rng, self.pool = np.random.default_rng(zlib.crc32(name.encode())), list[Array]()
        self._draws = RowDraws(self.rows, self.point, self.leaves, self._rng)
        inputs = self._draws.valid_rows(self.rows.length + MORE)
        leaves = zip(self.rows.program.leaf_names, self.leaves, self.rows.units, strict=True)
        for i, (name, leaf, unit) in enumerate(leaves):
            if name in self.numbers:
                self.pool.append(number(self.numbers[name], self.point.spec.dtype))
            elif unit is None:
                self.pool.append(leaf)
            elif i < len(self.rows.program.op.inputs):
                self.pool.append(np.concatenate([row[i] for row in inputs]) if inputs else leaf[:0])
            else:
                self.pool.append(self._rng.standard_normal((len(inputs), *unit)).astype(leaf.dtype))
        if inputs:
            self._check_time()
        kept = list(range(len(inputs)))
        if self._unpadded(self.pool) is None:
            kept = [row for row in kept if self._unpadded(self._at(np.array([row]))) is not None]
        if len(kept) < FEWEST:
            raise _Apart("no two valid rows of this shape can be drawn to test it")
        self.pool, self.count = self._at(np.array(kept)), len(kept)

    def _check_time(self) -> None:
        """Raise ``_Apart`` if a row takes so long by itself that its trial would hold up other requests."""
        one, runs, until = self._at(np.zeros(1, int)), 0, time.perf_counter() + MOMENT_S
        while (began := time.perf_counter()) < until or runs < RUNS:
            cpu = time.process_time()
            self._unpadded(one)
            wall, cpu = time.perf_counter() - began, time.process_time() - cpu
            if min(wall, cpu) <= LONGEST_S and wall <= WAITS_S:
                return
            runs += 1
        raise _Apart("a row takes so long that a shared call would bring little")

    @property
    def filler(self) -> list[Array]:
        """The first row of each leaf, valid and not special; nothing of a leaf without rows."""
        pairs = zip(self.pool, self.rows.units, strict=True)
        return [np.empty(0) if unit is None else x[0].copy() for x, unit in pairs]

    def compare(self) -> None:
        """Run all batches; raises ``_Apart``."""
        length = self.rows.length
        some = np.arange(length) % self.count
        for row in range(min(self.count, length, LONE)):
            self._add(np.full(length, row))
        shifts = range(length) if length <= SHIFTS else self._rng.permutation(length)[:SHIFTS]
        for shift in shifts:
            self._add(np.roll(some, shift))
        for _ in range(BATCHES):
            self._add(self._rng.integers(0, self.count, length))
        for size in UNPADDED:
            self._compare_unpadded(self._rng.integers(0, self.count, size))
        with np.errstate(over="ignore"):
            specials = {np.asarray(x, self.point.spec.dtype).tobytes(): x for x in SPECIAL}
        for special in specials.values():
            self._compare_beside(special, FLOATS, some)
        for special in self._special_integers():
            self._compare_beside(special, INTEGERS, some)

    def _at(self, order: Array, leaves: Sequence[Array] | None = None) -> list[Array]:
        """Return leaves, by default the pool, with their rows in this order."""
        leaves = self.pool if leaves is None else leaves
        return [x if unit is None else x[order] for x, unit in zip(leaves, self.rows.units, strict=True)]

    def _unpadded(self, leaves: Sequence[Array]) -> dict[Key, Array] | None:
        """Return the results of an evaluation with these leaves as it is, ``None`` if the op refuses it.

        In a graph, because XLA would compile for each number of rows.
        """
        try:
            results = modes.run(self.rows.program, "graph", leaves, self.rows.device)
        except REFUSALS:
            return None
        return {key: y for key, y in results.items() if y is not None and not isinstance(key[0], str)}

    def _compare_unpadded(self, order: Array) -> None:
        """Compare padded rows with the same rows run as they are."""
        padded = np.append(order, np.zeros(self.rows.length, int))[: self.rows.length]
        found, expected = self.rows.run_call(self._at(padded), len(order)), self._unpadded(self._at(order))
        shaken = self._unpadded(self._shaken(order))
        if expected is None or shaken is None:
            return
        largest = _largest(expected.values())
        for key, y in expected.items():
            value, stop = found[key], min(len(y), self.rows.length)
            if value is None or not _is_near(value, y[:stop], shaken[key][:stop], largest):
                raise _Apart(f"{key[1]} of padded rows differs from that of the same rows alone")

    def _shaken(self, order: Array) -> list[Array]:
        """Return the leaves of rows, with each number changed by its last bits."""
        leaves = self._at(order)
        for i, (x, unit) in enumerate(zip(leaves, self.rows.units, strict=True)):
            if unit is not None and x.dtype.kind not in "iub":
                signs = self._rng.choice([-1, 1], x.shape).astype(x.dtype)
                leaves[i] = x * (1 + np.spacing(x.dtype.type(1)) * signs)
        return leaves

    def _add(self, order: Array) -> None:
        """Compare the bits of each row of a batch with those that it had before."""
        for row, bits in zip(order.tolist(), self._bits(self._at(order)), strict=True):
            if self.bits.setdefault(row, bits) != bits:
                raise _Apart(BESIDE)

    def _bits(self, leaves: Sequence[Array]) -> list[bytes]:
        """Return the bytes of the results of each row of a call."""
        length = self.rows.length
        values = [y.reshape(length, -1) for y in self.rows.run_call(leaves, length).values() if y is not None]
        return [b"".join([y[row].tobytes() for y in values]) for row in range(length)]

    def _special_integers(self) -> list[int]:
        """Return integers that may be out of range: below 0, and above all that the pool has."""
        pairs = zip(self.pool, self.rows.units, strict=True)
        largest = [int(x.max()) for x, unit in pairs if unit is not None and x.dtype.kind in "iu" and x.size]
        return sorted({*SPECIAL_INTEGERS, *(top + above for top in largest for above in ABOVE)}) if largest else []

    def _compare_beside(self, special: float, kinds: str, order: Array) -> None:
        """Compare rows beside a row of a special number, and this one beside others, where the op accepts it.

        The number replaces those whose dtype is of one of ``kinds``. There is only one such row: it may take long.
        """
        names, inputs = self.rows.program.leaf_names, {slot.name for slot in self.rows.program.op.inputs}
        for changed in (inputs, set(names) - inputs):
            mixed, alone, is_special = self._at(order), self._at(np.full_like(order, self.count - 1)), False
            for name, unit, some, others in zip(names, self.rows.units, mixed, alone, strict=True):
                if unit is not None and name in changed and some.dtype.kind in kinds:
                    with np.errstate(over="ignore"):
                        some[1] = others[-1] = np.asarray(special).astype(some.dtype)
                    is_special = True
                elif unit is not None:
                    others[-1] = some[1]
            if not is_special:
                continue
            if changed is inputs and not self._draws.accepts(mixed):
                continue
            try:
                together, separate = self._bits(mixed), self._bits(alone)
            except REFUSALS:
                continue  # each request of such a batch runs again by itself
            expected = [self.bits[row] for row in order.tolist()]
            expected[1] = separate[-1]
            if together != expected:
                raise _Apart(BESIDE)
