"""Samples: the points where an op is checked, with directions, and the op's values there."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import cast

import numpy as np

from app.autodiff.binding import moved
from app.autodiff.derivatives import output_shapes, second_order_values
from app.autodiff.point import Arrays, Point, blame_op
from app.errors import OpFailed, Unprocessable
from app.gradcheck import rounding
from app.gradcheck.reference import as_float64
from app.gradcheck.rounding import Rounding
from app.gradcheck.rows import Rows
from app.runtime.modes import Key
from app.tensors.dtypes import DTYPES
from ops import Array, Claim, Mode

# The size of an op's constants, which are about 1, in a value, which is linear in its directions of up to 2; and the
# most that is taken for a constant where values are larger elsewhere.
ONES = {"outputs": 1.0, "gradients": 2.0, "products": 4.0, "slots": 2.0}
MOST = 4096.0
FIELDS = ("inputs", "cotangents", "vectors")
# The most numbers of leaves that are evaluated side by side.
STACKED = 1 << 18


@dataclass(frozen=True, eq=False)
class Sample:
    """A point, a cotangent for each differentiable output and a vector for each differentiable input.

    Directions are never 1 and differ from number to number, so a ``dy`` that is forgotten, squared or transposed shows.
    """

    point: Point
    cotangents: Arrays
    vectors: Arrays
    sizes: Mapping[Key, float] = field(default_factory=dict[Key, float], kw_only=True)
    """How large each of the values is elsewhere, where the target knows it: a constant of the op may hide here."""
    noises: Mapping[Key, float] | None = field(default=None, kw_only=True)
    """At a special place, the noise of each of the values elsewhere."""
    troubles: dict[str, Array] = field(default_factory=dict[str, Array], init=False)
    """The troubles that check derivative found in forward, by input and coordinate."""

    @cached_property
    def claim(self) -> Claim:
        """What the gradient claims to be, with this sample's attributes."""
        with blame_op(self.point.op, "claim"):
            claim = cast(object, self.point.op.claim(self.point.spec.attrs))
            if not isinstance(claim, Claim):
                raise TypeError(f"expected a Claim, got {type(claim).__name__}")
            return claim

    @cached_property
    def values(self) -> dict[Key, Array]:
        """The values, gradients and second order here: see ``app.autodiff.derivatives.second_order_values``."""
        return second_order_values(self.point, self.cotangents, self.vectors).run()

    @property
    def units(self) -> dict[Key, Array]:
        """The rounding error that each of the values may have, in units of ``eps`` of any dtype."""
        return self.rounding.units

    @cached_property
    def rounding(self) -> Rounding[Key]:
        """The rounding of the values."""
        rng = np.random.default_rng(0)

        def ones(key: Key) -> float:
            return max(ONES[str(key[0])], min(MOST, self.sizes.get(key, 0.0)))

        return rounding.measured(
            self._evaluate, self._leaves, rng, elementwise=self.is_elementwise, ones=ones, elsewhere=self.noises
        )

    @cached_property
    def is_computable(self) -> bool:
        """Whether the op has values here and nearby: it may reject some special places."""
        try:
            return bool(self.values) and bool(self.units)
        except (OpFailed, Unprocessable):
            return False

    @cached_property
    def spreads(self) -> dict[str, dict[Key, Array]]:
        """How far each of the values moves with inputs that are rounded to a narrower dtype, by dtype."""
        return {}

    @cached_property
    def is_singular(self) -> bool:
        """Whether the op declares that derivatives are infinite here by nature."""
        op, inputs = self.point.op, {name: as_float64(x) for name, x in self.point.inputs.items()}
        with blame_op(op, "singular"):
            return op.singular is not None and bool(op.singular(inputs, self.point.spec.attrs))

    @property
    def is_elementwise(self) -> bool:
        """Whether the op declares that each number depends only on the numbers at its own place."""
        return self.point.op.batching == "elementwise"

    def index(self, name: str) -> Callable[[int], tuple[int, ...]]:
        """Return a function from the flat position of a number in an input or output to its index."""
        leaf = self.point.inputs[name] if name in self.point.inputs else self.cotangents[name]
        return lambda i: tuple(int(k) for k in np.unravel_index(i, leaf.shape))

    @property
    def total_index(self) -> Callable[[int], tuple[int, ...] | None]:
        """The ``index`` of a ``total``: that of an element for an elementwise op, else ``nowhere``."""
        return self.index(next(iter(self.vectors))) if self.is_elementwise else nowhere

    def total(self, named: Arrays) -> Array:
        """Return the sum over all arrays: place by place for an elementwise op, else one number."""
        if self.is_elementwise:
            return np.sum(list(named.values()), axis=0)
        return np.asarray(sum(float(np.sum(np.asarray(value, np.float64))) for value in named.values()))

    def error_bound(self, key: Key, dtype: str) -> Array:
        """Return the rounding error that a value in ``dtype`` may have."""
        bound = rounding.eps(dtype) * self.units[key] + rounding.tiny(dtype)
        if rounding.eps(dtype) <= rounding.eps(self.point.spec.dtype):
            return bound
        if dtype not in self.spreads:
            rng = np.random.default_rng(0)
            self.spreads[dtype] = rounding.spread(self._evaluate, self._leaves, rng, rounding.eps(dtype))
        return np.fmax(bound, self.spreads[dtype][key])

    def in_mode(self, mode: Mode, device: str) -> "Sample":
        """Return the same sample in another mode or on another device."""
        return Sample(
            replace(self.point, spec=replace(self.point.spec, mode=mode, device=device)),
            self.cotangents,
            self.vectors,
            sizes=self.sizes,
            noises=self.noises,
        )

    def cast(self, point: Point) -> "Sample":
        """Return the sample at another point of the same shapes, with directions in the dtypes of that point."""
        of, to = point.spec.inputs.dtypes, point.spec.outputs.dtypes
        dys = {name: dy.astype(DTYPES[to[name]].numpy) for name, dy in self.cotangents.items()}
        vectors = {name: v.astype(DTYPES[of[name]].numpy) for name, v in self.vectors.items()}
        return Sample(point, dys, vectors, sizes=self.sizes, noises=self.noises)

    def redrawn(self, point: Point, rng: np.random.Generator) -> "Sample":
        """Return a sample at another point of the same shapes, with new random directions."""
        dys, vectors = (
            {name: draw(rng, x.shape).astype(x.dtype) for name, x in named.items()}
            for named in (self.cotangents, self.vectors)
        )
        return Sample(point, dys, vectors, sizes=self.sizes, noises=self.noises)

    @property
    def _fields(self) -> tuple[Arrays, Arrays, Arrays]:
        live = self.point.spec.inputs.differentiable
        return {name: self.point.inputs[name] for name in live}, self.cotangents, self.vectors

    @property
    def _leaves(self) -> dict[Key, Array]:
        named = zip(FIELDS, self._fields, strict=True)
        return {(field, name): value for field, values in named for name, value in values.items()}

    def _evaluate(self, sets: Sequence[Mapping[Key, Array]]) -> list[dict[Key, Array]]:
        """Return the values for each set of leaves: in one call, if the op's batching allows and the sets are small."""
        size = len(sets) * sum(leaf.size for leaf in self._leaves.values())
        if self.point.op.batching == "none" or size > STACKED:
            return [self._at(leaves) for leaves in sets]
        inputs, dys, vectors = (
            {name: np.stack([leaves[field, name] for leaves in sets]) for name in named}
            for field, named in zip(FIELDS, self._fields, strict=True)
        )
        values = Rows(self.point, lambda: None).second(inputs, dys, vectors)
        return [{key: value[i] for key, value in values.items()} for i in range(len(sets))]

    def _at(self, leaves: Mapping[Key, Array]) -> dict[Key, Array]:
        inputs, dys, vectors = (
            {name: leaves[field, name] for name in named} for field, named in zip(FIELDS, self._fields, strict=True)
        )
        return second_order_values(replace(self.point, inputs={**self.point.inputs, **inputs}), dys, vectors).run()


@dataclass(frozen=True, eq=False)
class Subsample(Sample):
    """Some numbers of an elementwise op's sample, in one dimension, with their flat ``indices`` in the whole.

    Their values are those that they have in the whole.
    """

    whole: Sample = field(kw_only=True)
    indices: Array = field(kw_only=True)

    @classmethod
    def of(cls, whole: Sample, indices: Array) -> "Subsample":
        """Select the numbers at flat ``indices``."""
        inputs, dys, vectors = (
            {name: x.ravel()[indices] for name, x in named.items()}
            for named in (whole.point.inputs, whole.cotangents, whole.vectors)
        )
        point = moved(whole.point, inputs)
        return cls(point, dys, vectors, whole=whole, indices=indices)

    @cached_property
    def values(self) -> dict[Key, Array]:
        """The values of the whole at the indices."""
        return {key: value.ravel()[self.indices] for key, value in self.whole.values.items()}

    def index(self, name: str) -> Callable[[int], tuple[int, ...]]:
        """Return a function from the position of a number in the subsample to its index in the whole."""
        place = self.whole.index(name)
        return lambda i: place(int(self.indices[i]))


def nowhere(i: int) -> None:
    """Return no index: the number belongs to no single element."""
    del i


def sample_at(
    point: Point,
    rng: np.random.Generator,
    sizes: Mapping[Key, float] | None = None,
    noises: Mapping[Key, float] | None = None,
) -> Sample:
    """Return a sample at a point, with random directions."""
    shapes, dtypes = output_shapes(point), point.spec.outputs.dtypes
    outputs = {name: shapes[name] for name in point.spec.outputs.differentiable}
    inputs = {name: point.inputs[name].shape for name in point.spec.inputs.differentiable}
    dys = {name: draw(rng, shape).astype(DTYPES[dtypes[name]].numpy) for name, shape in outputs.items()}
    vectors = {name: draw(rng, shape).astype(point.inputs[name].dtype) for name, shape in inputs.items()}
    return Sample(point, dys, vectors, sizes=sizes or {}, noises=noises)


def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw numbers of either sign and of sizes 0.5 to 2, none of them near 1, which no narrow dtype can represent."""
    return ((2 * rng.integers(32, 128, shape) + 1) / 128 + rng.uniform(0, 2.0**-9, shape)) * rng.choice(
        [-1.0, 1.0], shape
    )
