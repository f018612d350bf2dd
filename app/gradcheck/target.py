"""Targets: an op with one choice of attributes, at given points or at its examples and random points."""

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from app.autodiff.binding import Decode, bind
from app.autodiff.point import Point, blame_op
from app.errors import Loc, Unprocessable
from app.gradcheck import rounding
from app.gradcheck.sample import Sample, Subsample, sample_at
from app.runtime.cancellation import Checkpoint
from app.tensors.dtypes import DTYPES
from ops import BOOL, FLOATS, MODES, Array, Input, Mode, Op

# In addition to the examples: random numbers for an elementwise op, random points for any other.
NUMBERS, POINTS = 48, 2
# The most numbers of an elementwise op's point that are checked one by one.
NUMBERS_OF_LARGE = 4096
SIZES: Mapping[str, tuple[int, ...]] = {"...": (4,)}
# How far random numbers stay from kinks and poles, as a fraction of the domain.
APART = 1 / 32


@dataclass(frozen=True)
class Options:
    """How to check; ``None`` stands for all that the op has.

    ``absolute`` and ``relative`` widen every comparison of numbers. ``work`` is the most numbers that one numeric
    derivative may evaluate; ``devices`` maps our names to TensorFlow's, and the others are compared with the first.
    """

    devices: Mapping[str, str]
    dtypes: tuple[str, ...] | None = None
    modes: tuple[Mode, ...] | None = None
    orders: tuple[int, ...] = (1, 2)
    seed: int = 0
    absolute: float = 0.0
    relative: float = 0.0
    work: int = 1 << 24
    max_elements: int = 1 << 22


@dataclass(eq=False)
class Target:
    """An op with one choice of attributes. Its checks share what has been computed.

    If ``inputs`` is ``None``, the points are the examples with these attributes and random ones.
    """

    op: Op
    attrs: Mapping[str, Any]
    options: Options
    decode: Decode
    inputs: Mapping[str, Any] | None = None
    checkpoint: Checkpoint = lambda: None
    """Called between evaluations of the op; an exception that it raises ends the work."""

    def distrust_batching(self) -> None:
        """Stop batching points in one call, because the op's claim that they may be batched proved wrong."""
        self.op = replace(self.op, batching="none")
        for cached in ("points", "samples", "subsamples"):
            self.__dict__.pop(cached, None)

    def forget_troubles(self) -> None:
        """Drop the troubles of forward that a check found before it broke off: they may be incomplete."""
        for subsample in vars(self).get("subsamples", ()):
            subsample.troubles.clear()

    @cached_property
    def rng(self) -> np.random.Generator:
        """The random generator of this target, seeded by the op, its attributes and the seed."""
        text = f"{self.op.name} {sorted(self.attrs.items())}"
        return np.random.default_rng([self.options.seed, zlib.crc32(text.encode())])

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The float dtypes to check, the widest first."""
        wanted = self.options.dtypes or self.op.dtypes
        floats = [dtype for dtype in wanted if dtype in FLOATS and dtype in self.op.dtypes]
        return tuple(sorted(floats, key=rounding.eps))

    @property
    def widest(self) -> str:
        """The widest float dtype of the op, requested or not: the reference for the others."""
        floats = [dtype for dtype in self.op.dtypes if dtype in FLOATS]
        return min(floats, key=rounding.eps) if floats else self.op.dtypes[0]

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes to compare with graph, which may be among them."""
        return tuple(mode for mode in MODES if mode in (self.options.modes or self.op.modes))

    @property
    def device(self) -> str:
        """TensorFlow's name of the device that the checks run on."""
        return next(iter(self.options.devices.values()))

    @cached_property
    def points(self) -> list[Point]:
        """The points to check, in the widest dtype, bound to the op but not evaluated."""
        if self.inputs is not None:
            return [self.bind(self.inputs, self.widest)]
        examples = [e for e in self.op.examples if dict(e.attrs) == dict(self.attrs)]
        points = [self.bind(example.inputs, self.widest) for example in examples]
        if self.op.batching == "elementwise":
            return [self._gather(points)]
        return points + [self.bind(self._draw((3,)), self.widest) for _ in range(POINTS)]

    @cached_property
    def samples(self) -> list[Sample]:
        """The points, in the widest dtype and mode graph."""
        return [sample_at(point, self.rng) for point in self.points]

    @cached_property
    def subsamples(self) -> list[Sample]:
        """The samples; a large one of an elementwise op is reduced to ``NUMBERS_OF_LARGE`` random numbers."""
        return [self._subsample(sample) for sample in self.samples]

    @property
    def smooth(self) -> list[Sample]:
        """The subsamples where the op does not declare that derivatives are infinite by nature."""
        return [sample for sample in self.subsamples if not sample.is_singular]

    def whole(self, subsample: Sample) -> Sample:
        """Return the sample that a subsample belongs to."""
        return self.samples[self.subsamples.index(subsample)]

    def _subsample(self, sample: Sample) -> Sample:
        size = max((x.size for x in sample.point.inputs.values()), default=0)
        if not sample.is_elementwise or size <= NUMBERS_OF_LARGE:
            return sample
        return Subsample.of(sample, np.sort(self.rng.choice(size, NUMBERS_OF_LARGE, replace=False)))

    def bind(self, inputs: Mapping[str, Any], dtype: str) -> Point:
        """Return these inputs as a point. Raises ``Unprocessable`` if the op rejects them."""
        run = {"device": self.device, "max_elements": self.options.max_elements}
        return bind(self.op, inputs, self.attrs, dtype, self._decode, mode="graph", **run)

    def in_dtype(self, sample: Sample, dtype: str) -> Sample | None:
        """Return a sample in another dtype, or ``None`` if it overflows or the op rejects it."""
        try:
            narrow = sample.cast(self.bind(sample.point.inputs, dtype))
        except Unprocessable:
            return None
        pairs = ((x, narrow.point.inputs[name]) for name, x in sample.point.inputs.items())
        return narrow if all(np.isfinite(y[np.isfinite(x)]).all() for x, y in pairs) else None

    def widen(self, sample: Sample) -> Sample:
        """Return a sample in the widest dtype, with the same numbers."""
        return sample.cast(self.bind(sample.point.inputs, self.widest))

    def _decode(self, value: Any, dtype: str, loc: Loc) -> Array:
        if isinstance(value, np.ndarray):
            with np.errstate(over="ignore"):
                return cast(Array, value).astype(DTYPES[dtype].numpy)
        return self.decode(value, dtype, loc)

    def _gather(self, points: list[Point]) -> Point:
        """Return one point of an elementwise op: the numbers of its examples, and random ones."""
        drawn = [self._draw((NUMBERS,))]
        while self.op.sample and sum(next(iter(inputs.values())).size for inputs in drawn) < NUMBERS:
            drawn.append(self._draw((NUMBERS,)))
        parts = [*(point.inputs for point in points), *drawn]
        return self.bind(
            {slot.name: np.concatenate([np.ravel(part[slot.name]) for part in parts]) for slot in self.op.inputs},
            self.widest,
        )

    def _draw(self, ellipsis: tuple[int, ...]) -> dict[str, Array]:
        """Draw a valid point, away from kinks and poles; ``ellipsis`` is the shape of ``...``."""
        if self.op.sample is not None:
            attrs = self.op.attrs.model_validate(self.attrs)
            with blame_op(self.op, "sample"):
                drawn = dict(self.op.sample(self.rng, self.widest, attrs))
                return {**drawn, **{slot.name: np.asarray(drawn[slot.name]) for slot in self.op.inputs}}
        sizes = {**SIZES, "...": ellipsis}
        return {slot.name: self._uniform(slot, sizes) for slot in self.op.inputs}

    def _uniform(self, slot: Input, sizes: Mapping[str, tuple[int, ...]]) -> Array:
        """Draw numbers from an input's domain, away from its kinks and poles, or bools."""
        shape = [n for symbol in slot.shape for n in ([symbol] if isinstance(symbol, int) else sizes.get(symbol, (3,)))]
        dtype = self.op.dtype_of(slot, self.widest)
        if dtype == BOOL:
            return self.rng.integers(0, 2, shape) == 1
        drawn = self.rng.uniform(*slot.domain, shape)
        return _away(slot, drawn if dtype in FLOATS else np.floor(drawn))


def _away(slot: Input, x: Array) -> Array:
    """Move numbers near a kink or pole away from it, within the domain."""
    low, high = slot.domain
    room = APART * (high - low)
    for at in (*slot.kinks, *slot.poles):
        near = np.abs(x - at) < room
        x = np.where(near, np.where(at + 2 * room < high, at + 1.5 * room, at - 1.5 * room), x)
    return x
