"""Samples: the points where an op is checked, with directions, and the op's values there."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from app.autodiff.derivatives import KINDS, Kind, output_shapes, values_up_to
from app.autodiff.point import Arrays, Point, blame_op
from app.autodiff.random_errors import NO_LOSSES, Losses
from app.errors import OpFailed, Unprocessable
from app.gradcheck import points, rounding
from app.gradcheck.graphs import calls_python, narrowing_casts
from app.gradcheck.inner_errors import InnerErrors
from app.gradcheck.reference import is_singular
from app.gradcheck.rounding import Rounding
from app.gradcheck.rows import Rows, halves, has_branch_or_loop, has_loop, is_joinable, stack
from app.runtime import modes
from app.runtime.modes import Key, Trace
from app.runtime.op_errors import expected_errors, op_errors
from app.tensors.dtypes import DTYPES
from ops import Array, Claim, Mode
from pullback.gradcheck.noise import scaled

# How often the errors inside an op are drawn; for a narrow dtype more often, because nothing else is measured.
DRAWS, DRAWS_IN_NARROW = 5, 10
# The most numbers of leaves that are evaluated side by side.
MAX_STACKED = 1 << 18


@dataclass(frozen=True, eq=False)
class Sample:
    """A point, a cotangent for each differentiable output and a vector for each differentiable input.

    Directions are never 1 and differ from number to number, so a ``dy`` that is forgotten, squared or transposed shows.
    """

    point: Point
    cotangents: Arrays
    vectors: Arrays
    magnitudes: Mapping[Key, float] = field(default_factory=dict[Key, float], kw_only=True)
    """How large each of the values is elsewhere, where the target knows it."""
    noise_floors: Mapping[Key, float] | None = field(default=None, kw_only=True)
    """At a special point, the noise of each of the values elsewhere."""
    last: Kind = field(default="products", kw_only=True)
    """The last kind of values that are evaluated: without ``products`` there is no second order."""
    statuses: dict[str, Array] = field(default_factory=dict[str, Array], init=False)
    """The statuses of the numeric derivative of forward that check derivative found, by input and coordinate."""

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
        """The values of each kind up to ``last``: see ``app.autodiff.derivatives.values_up_to``."""
        return values_up_to(self.last, self.point, self.cotangents, self.vectors).run()

    @cached_property
    def rounding(self) -> Rounding[Key]:
        """The rounding error that each of the values may have, in units of ``eps`` of its dtype, and their noise."""
        floors, kinds = self.noise_floors, KINDS[: KINDS.index(self.last) + 1]
        if floors is not None:
            floors = {key: floor for key, floor in floors.items() if key[0] in kinds}
        scale, unit = rounding.measured_with(self.point.spec.dtype), rounding.eps(self.point.spec.dtype)
        at, whole, half = self.with_errors(0.0, scale, scale / 2)
        terms = rounding.terms_of(at[0], whole, half, scale)
        if floors is not None:
            # At a special point, a computed number may be on either side of a kink: errors of one sign may miss it.
            right, left = self.with_errors(rounding.BESIDE * unit, -rounding.BESIDE * unit)
            jumps = rounding.spread(at[0], [*right, *left])
            terms = {key: np.fmax(size, jumps[key] / unit) for key, size in terms.items()}
        return rounding.measure(
            self._evaluate,
            self._leaves,
            np.random.default_rng(0),
            elementwise=self.is_elementwise,
            terms=terms,
            elsewhere=self.magnitudes,
            noise_floors=floors,
            narrows=lambda: bool(narrowing_casts(self.trace)),
            is_hidden=lambda: calls_python(self.trace),
            room={key: points.room(self.point.op, key[1], x) for key, x in self._leaves.items() if key[0] == "inputs"},
        )

    @cached_property
    def trace(self) -> Trace:
        """The trace of the values in mode graph."""
        call = values_up_to(self.last, self.point, self.cotangents, self.vectors)
        with op_errors(self.point.op.name):
            return modes.trace_of(call.program, "graph", call.leaves, self.point.spec.device)

    @cached_property
    def is_computable(self) -> bool:
        """Whether the op has values here and nearby: it may reject some special points."""
        try:
            return bool(self.values) and bool(self.rounding.bounds)
        except (OpFailed, Unprocessable):
            return False

    @cached_property
    def inner_dtype(self) -> str:
        """The dtype in which the op computes its values: its own, or half precision, as a policy of Keras may want.

        Only forward shows that. An op with a reference, whose values must have all digits, has no other dtype.
        """
        own = self.point.spec.dtype
        if own != "float32" or self.point.op.reference is not None:
            return own
        return max((own, *halves(self.point)), key=rounding.eps)

    @cached_property
    def is_precise(self) -> bool:
        """Whether the op is narrower than float64, and the same function in it: numeric derivatives have more digits.

        Its values and gradients here must agree but for rounding.
        """
        if rounding.eps(self.point.spec.dtype) <= rounding.eps("float64"):
            return False
        xs, dys = ({name: x[None] for name, x in leaves.items()} for leaves in (self.inputs, self.cotangents))
        rows = Rows(self.point, lambda: None, precise=True)
        with suppress(OpFailed, Unprocessable), expected_errors():
            found = {("outputs", name): y for name, y in rows.forward(xs).items()}
            if self.last != "outputs":
                found |= {("gradients", name): dx for name, dx in rows.vjp(xs, dys).items()}
            return all(self._is_near(key, value[0]) for key, value in found.items())
        return False

    def _is_near(self, key: Key, precise: Array) -> bool:
        value = np.asarray(self.values[key], np.float64)
        with np.errstate(invalid="ignore"):
            is_near = np.abs(value - precise) <= self.error_bound(key, self.point.spec.dtype)
        return bool(np.all(is_near | (value == precise) | (np.isnan(value) & np.isnan(precise))))

    @property
    def precise_dtype(self) -> str:
        """The dtype in which the op can compute what a numeric derivative needs."""
        return "float64" if self.is_precise else self.point.spec.dtype

    @cached_property
    def spreads(self) -> dict[str, dict[Key, Array]]:
        """How far each of the values moves with the roundings of a narrower dtype inside the op, by dtype."""
        return {}

    @cached_property
    def is_singular(self) -> bool:
        """Whether the op declares that derivatives are infinite here by nature."""
        return is_singular(self.point)

    @cached_property
    def has_loop(self) -> bool:
        """Whether forward runs a loop of TensorFlow."""
        return has_loop(self.point)

    @property
    def is_elementwise(self) -> bool:
        """Whether the op declares that each number depends only on the numbers at its own index."""
        return self.point.spec.batching == "elementwise"

    def index(self, name: str) -> Callable[[int], tuple[int, ...]]:
        """Return a function from the flat position of a number in an input or output to its index."""
        leaf = self.point.inputs[name] if name in self.point.inputs else self.cotangents[name]
        return lambda i: tuple(int(k) for k in np.unravel_index(i, leaf.shape))

    @property
    def total_index(self) -> Callable[[int], tuple[int, ...] | None]:
        """The ``index`` of a ``total``: that of an element for an elementwise op, else ``nowhere``."""
        return self.index(next(iter(self.vectors))) if self.is_elementwise else nowhere

    def total(self, named: Arrays) -> Array:
        """Return the sum over all arrays: one for each element of an elementwise op, else one number."""
        if self.is_elementwise:
            return np.sum(list(named.values()), axis=0)
        return np.asarray(sum(float(np.sum(np.asarray(value, np.float64))) for value in named.values()))

    @property
    def inputs(self) -> dict[str, Array]:
        """The differentiable inputs."""
        return {name: self.point.inputs[name] for name in self.vectors}

    def of_kind(self, kind: str) -> dict[str, Array]:
        """Return the values of one kind, such as the gradients, by name."""
        return {name: value for (of, name), value in self.values.items() if of == kind}

    def scales(self, kind: str) -> dict[str, Array]:
        """Return how large the values of one kind are, or the terms that they are made of, by name."""
        return {name: self.rounding.scales[kind, name] for name in self.of_kind(kind)}

    def error_bounds(self, kind: str, dtype: str) -> dict[str, Array]:
        """Return the rounding errors that the values of one kind in ``dtype`` may have, by name."""
        return {name: self.error_bound((kind, name), dtype) for name in self.of_kind(kind)}

    def error_bound(self, key: Key, dtype: str) -> Array:
        """Return the rounding error that a value in ``dtype`` may have."""
        if rounding.eps(dtype) < rounding.eps(self.inner_dtype) and dtype == self.point.spec.dtype:
            dtype = self.inner_dtype
        if rounding.eps(dtype) <= rounding.eps(self.point.spec.dtype):
            return rounding.eps(dtype) * self.rounding.bounds[key] + rounding.underflow(dtype)
        if dtype not in self.spreads:
            self.spreads[dtype] = self._spread(dtype)
        return rounding.in_narrow(self.values[key], self.spreads[dtype][key], dtype)

    def allowed(self, key: Key, dtype: str, found: Array, expected: Array, *, times: int = 1, at: Any = ...) -> Array:
        """Return so many ``times`` the rounding error that a value in ``dtype`` may have, ``at`` an index of it.

        If what is ``found`` there is within the least that this can be, return that: to measure the whole takes longer.
        """
        least = times * self.least_error_bound(key, dtype)[at]
        return least if rounding.is_within(found, expected, least) else times * self.error_bound(key, dtype)[at]

    def least_error_bound(self, key: Key, dtype: str) -> Array:
        """Return the part of ``error_bound`` that follows from the size of the numbers alone."""
        value, own = self.values[key], self.point.spec.dtype
        if rounding.eps(dtype) > rounding.eps(own):
            return rounding.in_narrow(value, np.zeros(value.shape), dtype)
        size = np.abs(np.nan_to_num(np.asarray(value, np.float64), nan=0.0, posinf=0.0, neginf=0.0))
        if not self.is_elementwise:
            size = np.full(size.shape, size.max(initial=0.0))
        return rounding.ROUNDINGS * rounding.eps(dtype) * size + rounding.underflow(dtype)

    def moved_by_flushing(self, least: float) -> dict[Key, Array]:
        """Return how far the values move if every result inside the op that is smaller than ``least`` becomes 0."""
        (flushed,) = self.with_errors(0.0, losses=Losses(flushed=least))
        return rounding.spread(self.values, flushed)

    def _spread(self, dtype: str) -> dict[Key, Array]:
        ((at,),) = self.with_errors(0.0)
        scale, losses, deepest = rounding.eps(dtype), rounding.losses(dtype), rounding.deepest(dtype)
        (others,) = self.with_errors(scale, draws=DRAWS_IN_NARROW, losses=losses)
        if has_branch_or_loop(self.point):
            # What is not seen of it may be as far off as the right results for leaves that are off by a rounding.
            with suppress(OpFailed, Unprocessable):
                others = [*others, *self._evaluate(self._leaves_off(scale, DRAWS_IN_NARROW))]
        spread = rounding.spread(at, others)
        sizes = {key: np.abs(np.asarray(value, np.float64)) for key, value in at.items()}
        may_be_lost = {key: (size > rounding.underflow(dtype)) & (size < deepest) for key, size in sizes.items()}
        if any(lost.any() for lost in may_be_lost.values()):
            losses = losses._replace(flushed=rounding.tiny(dtype))
            (others,) = self.with_errors(scale, draws=DRAWS_IN_NARROW, losses=losses)
            flushed = rounding.spread(at, others)
            spread = {
                key: np.where(may_be_lost[key], np.fmax(size, flushed[key]), size) for key, size in spread.items()
            }
        return spread

    def in_mode(self, mode: Mode, device: str) -> "Sample":
        """Return the same sample in another mode or on another device."""
        point = replace(self.point, spec=replace(self.point.spec, mode=mode, device=device))
        return self._at(point, self.cotangents, self.vectors)

    def up_to(self, last: Kind) -> "Sample":
        """Return the same sample without the values of later kinds, which then cannot fail."""
        return replace(self, last=last)

    def again(self) -> "Sample":
        """Return the same sample, not evaluated yet."""
        return self._at(self.point, self.cotangents, self.vectors)

    def cast(self, point: Point) -> "Sample":
        """Return the sample at another point of the same shapes, with directions in the dtypes of that point."""
        of, to = point.spec.inputs.dtypes, point.spec.outputs.dtypes
        dys = {name: dy.astype(DTYPES[to[name]].numpy) for name, dy in self.cotangents.items()}
        return self._at(point, dys, {name: v.astype(DTYPES[of[name]].numpy) for name, v in self.vectors.items()})

    def redrawn(self, point: Point, rng: np.random.Generator) -> "Sample":
        """Return a sample at another point of the same shapes, with new random directions."""
        dys, vectors = (
            {name: draw(rng, x.shape).astype(x.dtype) for name, x in named.items()}
            for named in (self.cotangents, self.vectors)
        )
        return self._at(point, dys, vectors)

    def _at(self, point: Point, cotangents: Arrays, vectors: Arrays) -> "Sample":
        magnitudes, floors = self.magnitudes, self.noise_floors
        return Sample(point, cotangents, vectors, magnitudes=magnitudes, noise_floors=floors, last=self.last)

    @cached_property
    def _leaves(self) -> dict[Key, Array]:
        """The differentiable inputs, the cotangents and the vectors."""
        fields = {"inputs": self.inputs, "cotangents": self.cotangents, "vectors": self.vectors}
        return {(kind, name): x for kind, named in fields.items() for name, x in named.items()}

    def with_errors(
        self, *scales: float, draws: int = DRAWS, losses: Losses = NO_LOSSES
    ) -> list[list[dict[Key, Array]]]:
        """Return the values with random errors of each relative size inside the op; one set of them for 0.

        If the op rejects numbers that are off, the errors are those of its leaves.
        """
        try:
            inner = InnerErrors(self.last, self.point, self.cotangents, self.vectors, draws, losses)
            return inner.values(*scales)
        except (OpFailed, Unprocessable):
            return [self._evaluate(self._leaves_off(scale, draws)) if scale else [self.values] for scale in scales]

    def _leaves_off(self, scale: float, draws: int) -> list[dict[Key, Array]]:
        rng = np.random.default_rng(0)
        return [
            scaled(self._leaves, {name: rng.standard_normal(x.shape) for name, x in self._leaves.items()}, scale)
            for _ in range(draws)
        ]

    def _evaluate(self, sets: Sequence[Mapping[Key, Array]]) -> list[dict[Key, Array]]:
        """Return the values for each set of leaves: in one call, if the op's batching allows and the sets are small.

        Numbers at an end of their domain move into it.
        """
        sets = [
            {
                key: points.reflected(self.point.op, key[1], self._leaves[key], x) if key[0] == "inputs" else x
                for key, x in leaves.items()
            }
            for leaves in sets
        ]

        def split(leaves: Mapping[Key, Array]) -> Iterator[dict[str, Array]]:
            for wanted in ("inputs", "cotangents", "vectors"):
                yield {name: x for (kind, name), x in leaves.items() if kind == wanted}

        size = len(sets) * sum(leaf.size for leaf in self._leaves.values())
        if not is_joinable(self.point.spec) or size > MAX_STACKED:
            several = (
                (replace(self.point, inputs={**self.point.inputs, **xs}), *more) for xs, *more in map(split, sets)
            )
            return [values_up_to(self.last, *each).run() for each in several]
        values = Rows(self.point, lambda: None).values_up_to(self.last, *split(stack(sets)))
        return [{key: value[i] for key, value in values.items()} for i in range(len(sets))]


def nowhere(i: int) -> None:
    """Return no index: the number belongs to no single element."""
    del i


def sample_at(
    point: Point,
    rng: np.random.Generator,
    magnitudes: Mapping[Key, float] | None = None,
    noise_floors: Mapping[Key, float] | None = None,
    *,
    last: Kind,
) -> Sample:
    """Return a sample at a point, with random directions, and values up to the ``last`` kind."""
    shapes, dtypes = output_shapes(point), point.spec.outputs.dtypes
    outputs = {name: shapes[name] for name in point.spec.outputs.differentiable}
    inputs = {name: point.inputs[name].shape for name in point.spec.inputs.differentiable}
    dys = {name: draw(rng, shape).astype(DTYPES[dtypes[name]].numpy) for name, shape in outputs.items()}
    vectors = {name: draw(rng, shape).astype(point.inputs[name].dtype) for name, shape in inputs.items()}
    return Sample(point, dys, vectors, magnitudes=magnitudes or {}, noise_floors=noise_floors, last=last)


def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw numbers of either sign and of sizes 0.5 to 2, none of them near 1, which no narrow dtype can represent."""
    return ((2 * rng.integers(32, 128, shape) + 1) / 128 + rng.uniform(0, 2.0**-9, shape)) * rng.choice(
        [-1.0, 1.0], shape
    )


def stacked(samples: Sequence[Sample]) -> tuple[dict[str, Array], dict[str, Array], dict[str, Array]]:
    """Return the inputs, the cotangents and the vectors of samples of one shape, rows first."""
    inputs, cotangents, vectors = zip(
        *((each.point.inputs, each.cotangents, each.vectors) for each in samples), strict=True
    )
    return stack(inputs), stack(cotangents), stack(vectors)
