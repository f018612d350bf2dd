"""Targets: an op with one choice of attributes, at given points or at its examples and random points."""

import contextlib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from app.autodiff import draws
from app.autodiff.binding import Decode, bind, bind_attrs
from app.autodiff.derivatives import Kind, values_of
from app.autodiff.point import Point, blame_op
from app.errors import Loc, OpFailed, Unprocessable
from app.gradcheck import axes, choices, rounding
from app.gradcheck import points as points_of
from app.gradcheck.balance import balanced, even
from app.gradcheck.options import Options
from app.gradcheck.reference import has_reference, is_as_reference, is_singular
from app.gradcheck.rows import Rows, numbers_of
from app.gradcheck.sample import Sample, sample_at, stacked
from app.gradcheck.subsample import Subsample
from app.runtime.cancellation import Checkpoint
from app.runtime.modes import Key
from app.tensors.dtypes import DTYPES
from ops import COMPLEX, FLOATS, MODES, Array, Batching, Claim, Mode, Op

# In addition to the examples: random numbers for an elementwise op, random points for any other.
RANDOM_NUMBERS, RANDOM_POINTS = 256, 2
# The points of a sweep over an op that is not elementwise.
SWEEP_POINTS = 192
# The most numbers of an elementwise op's point that are checked one by one.
NUMBERS_OF_LARGE = 4096


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
    has_example: bool = True
    """Whether an example or the request has these attributes; otherwise they are tried."""
    are_attrs_given: bool = False
    """Whether the request has these attributes, or the inputs, so that no other attributes are tried."""
    checkpoint: Checkpoint = lambda: None
    """Called between evaluations of the op; an exception that it raises ends the work."""
    has_failed_second: bool = False
    """Whether check contract found that the second order fails."""

    @property
    def is_first(self) -> bool:
        """Whether a check that runs once for an op runs here: at the first example, unless attributes are given."""
        return not self.are_attrs_given and dict(self.attrs) in choices.of_examples(self.op)[:1]

    @cached_property
    def batching(self) -> Batching:
        """Which rows of the op are independent with these attributes."""
        with blame_op(self.op, "batching"):
            return self.op.batching_for(bind_attrs(self.op, self.attrs))

    @cached_property
    def why_no_second(self) -> str:
        """Why the second order is not checked, "" if it is."""
        attrs = bind_attrs(self.op, self.attrs)
        with blame_op(self.op, "claim"):
            claim = cast(object, self.op.claim(attrs))
        if isinstance(claim, Claim) and claim.second is None:
            return "the op declares that it has no second order: Claim(second=None)"
        if self.has_failed_second:
            return "not run, because check contract fails at the second order"
        return "" if max(self.options.orders) > 1 else "only the first order is requested"

    @property
    def orders(self) -> tuple[int, ...]:
        """The requested orders that the op has, but for those above the second."""
        every = (1,) if self.why_no_second else (1, 2)
        return tuple(order for order in every if order in self.options.orders)

    @property
    def last(self) -> Kind:
        """The last kind of values that the samples evaluate."""
        return "gradients" if self.why_no_second else "products"

    def disable_second(self) -> None:
        """Leave out the second order, because it fails."""
        self.has_failed_second = True
        self._forget("why_no_second")

    def disable_batching(self) -> None:
        """Stop batching points in one call, because the op's claim that they may be batched proved wrong."""
        self.replace_op(replace(self.op, batching="none", shared=()))

    def replace_op(self, op: Op) -> None:
        """Go on with another declaration of the op."""
        self.op = op
        self._forget("batching", "points")

    def restrict_to(self, inputs: Mapping[str, Any]) -> None:
        """Go on at these inputs alone."""
        self.inputs = inputs
        self._forget("points")

    def _forget(self, *cached: str) -> None:
        """Forget some cached properties, and everything that depends on them."""
        sweeps = ("sweep_samples", "sweep_values", "magnitudes")
        others = ("balanced", "special_samples", "complex_samples", "near_samples", "near_values")
        for name in (*cached, "samples", "subsamples", *others, *sweeps):
            self.__dict__.pop(name, None)

    def clear_statuses(self) -> None:
        """Drop the statuses of forward that a check found before it ended early: they may be incomplete."""
        for subsample in vars(self).get("subsamples", ()):
            subsample.statuses.clear()

    def rng(self, purpose: str) -> np.random.Generator:
        """Return a random generator for a purpose, such as a check: it depends on nothing else but the seed."""
        return np.random.default_rng([self.options.seed, zlib.crc32(purpose.encode())])

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The float dtypes to check, the widest first."""
        wanted = self.options.dtypes or self.op.dtypes
        floats = [dtype for dtype in wanted if dtype in FLOATS and dtype in self.op.dtypes]
        return tuple(sorted(floats, key=rounding.eps))

    @property
    def widest(self) -> str:
        """The widest float dtype of the op, requested or not: the reference for the others."""
        floats = (dtype for dtype in self.op.dtypes if dtype in FLOATS)
        return min(floats, key=rounding.eps, default=self.op.dtypes[0])

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes to compare with graph, which may be among them."""
        return tuple(mode for mode in MODES if mode in (self.options.modes or self.op.modes))

    @cached_property
    def points(self) -> list[Point]:
        """The points to check, in the widest dtype, bound to the op but not evaluated."""
        if self.inputs is not None:
            return [self.bind(self.inputs, self.widest)]
        examples = [e for e in self.op.examples if dict(e.attrs) == dict(self.attrs)]
        points = [self.bind(example.inputs, self.widest) for example in examples]
        rng, draw = self.rng("points"), (self.op, self.attrs, self.widest)
        if self.batching == "elementwise":
            drawn = points_of.latin_hypercube(*draw, rng, RANDOM_NUMBERS)
            return [self._join([*(point.inputs for point in points), *drawn])]
        count = RANDOM_POINTS if self.has_example else 1
        return points + [self.bind(draws.draw(*draw, rng), self.widest) for _ in range(count)]

    @cached_property
    def samples(self) -> list[Sample]:
        """The points, in the widest dtype and mode graph."""
        rng = self.rng("directions")
        samples = [sample_at(point, rng, self.magnitudes, last=self.last) for point in self.points]
        if self.inputs is None and self.batching != "elementwise" and self.has_example:
            # Before the last one, of whose shape XLA compiles.
            samples[-1:-1] = self._further(self.rng("sizes"))
        return samples

    def _further(self, rng: np.random.Generator) -> Iterator[Sample]:
        """Yield a sample whose dimensions all have different sizes, or samples that ``Op.sample`` does not draw.

        The latter count only where the op accepts them and its values are those of its reference.
        """
        draw = (self.op, self.attrs, self.widest, rng)
        if self.op.sample is None:
            drawn: Iterable[Mapping[str, Array]] = [draws.draw(*draw, points_of.uneven_dimensions(self.op))]
        else:
            drawn = points_of.unlike_samples(*draw) if self.op.reference or self.op.validate else ()
        for point in self._as_reference(drawn):
            yield sample_at(point, rng, self.magnitudes, last=self.last)

    def _as_reference(self, drawn: Iterable[Mapping[str, Array]]) -> Iterator[Point]:
        """Yield the points where the op and its reference have values, equal ones if the op draws its points itself."""
        for inputs in drawn:
            with contextlib.suppress(OpFailed, Unprocessable):
                point = self.bind(inputs, self.widest)
                outputs = values_of(point).run()
                if has_reference(point) and (self.op.sample is None or is_as_reference(point, outputs)):
                    yield point

    @cached_property
    def sweep_samples(self) -> list[Sample]:
        """Samples of one shape at points that are spread over the domain; none of an elementwise op, or at one point.

        Their number is limited to a small part of the work of a numeric derivative.
        """
        if self.batching == "elementwise" or self.inputs is not None:
            return []
        rng, found = self.rng("many"), list[Sample]()
        most = SWEEP_POINTS if self.has_example else SWEEP_POINTS // 4
        for inputs in points_of.latin_hypercube(self.op, self.attrs, self.widest, rng, most):
            with contextlib.suppress(Unprocessable):
                point = self.bind(inputs, self.widest)
                if not found:
                    most = min(most, self.options.work // (64 * max(numbers_of(point), point.cost)))
                    found.append(sample_at(point, rng, last=self.last))
                elif [x.shape for x in point.inputs.values()] == [x.shape for x in found[0].point.inputs.values()]:
                    found.append(found[0].redrawn(point, rng))
            if len(found) >= most:
                break
        return found

    @cached_property
    def sweep_values(self) -> dict[Key, Array]:
        """The values of ``sweep_samples``, rows first; none where the op fails at one of them."""
        return self._values_at(self.sweep_samples)

    @cached_property
    def near_values(self) -> dict[Key, Array]:
        """The values of ``near_samples``, rows first; none where the op fails at one of them."""
        return self._values_at(self.near_samples)

    def _values_at(self, samples: Sequence[Sample]) -> dict[Key, Array]:
        with contextlib.suppress(OpFailed, Unprocessable):
            return Rows(samples[0].point, self.checkpoint).values_up_to(self.last, *stacked(samples)) if samples else {}
        return {}

    @cached_property
    def magnitudes(self) -> dict[Key, float]:
        """How large each of the values is at most among ``sweep_samples``."""
        with np.errstate(invalid="ignore"):
            sizes = {key: np.abs(np.asarray(value, np.float64)) for key, value in self.sweep_values.items()}
        return {key: float(size[np.isfinite(size)].max(initial=0.0)) for key, size in sizes.items()}

    @cached_property
    def subsamples(self) -> list[Sample]:
        """The samples; a large one of an elementwise op is reduced to ``NUMBERS_OF_LARGE`` random numbers."""
        found = list[Sample]()
        for sample in self.samples:
            size = max((x.size for x in sample.point.inputs.values()), default=0)
            if sample.is_elementwise and size > NUMBERS_OF_LARGE:
                chosen = np.sort(self.rng("numbers").choice(size, NUMBERS_OF_LARGE, replace=False))
                found.append(Subsample.of(sample, chosen))
            else:
                found.append(sample)
        return found

    @cached_property
    def special_samples(self) -> list[Sample]:
        """Samples at 0, ties, kinks and the ends of the domain; none at given inputs.

        Points that the op rejects, or where its reference raises, are outside of the domain.
        """
        if self.inputs is not None or not (self.has_example or self.batching == "elementwise"):
            return []
        rng = self.rng("special")
        accepted = self._accepted(points_of.special(self.op, self.attrs, self.widest, rng))
        floors: dict[Key, float] = {}
        with contextlib.suppress(OpFailed, Unprocessable):
            # The least noise of each value among the samples; none where the op fails at one of them.
            every = [sample.rounding.noises for sample in self.subsamples]
            floors = {key: min(noises.get(key, 0.0) for noises in every) for key in every[0]}
        return [sample_at(point, rng, self.magnitudes, floors, last=self.last) for point in accepted]

    @cached_property
    def near_samples(self) -> list[Sample]:
        """Samples at numbers near kinks, poles and ends of the domain: one of an elementwise op; none at given inputs.

        Those of any other op have one shape, and are at most as many as ``sweep_samples``.
        """
        if self.inputs is not None or not (self.batching == "elementwise" or self.sweep_samples):
            return []
        rng = self.rng("near")
        drawn = points_of.near_edges(self.op, self.attrs, self.widest, rng)
        points = self._accepted(drawn)[: max(1, len(self.sweep_samples))]
        return [sample_at(point, rng, self.magnitudes, last=self.last) for point in points]

    @cached_property
    def complex_samples(self) -> list[Sample]:
        """Samples at complex numbers on the axes, of equal sizes and of equal angles; none at given inputs.

        If the op draws its points itself, they count where ``_further`` counts others.
        """
        is_known = self.op.sample is None or self.op.reference or self.op.validate
        if self.inputs is not None or not self.has_example or not is_known:
            return []
        rng = self.rng("complex")
        drawn = self._as_reference(axes.complex_points(self.op, self.attrs, self.widest, rng))
        return [sample_at(point, rng, self.magnitudes, last=self.last) for point in drawn if not is_singular(point)]

    def _accepted(self, drawn: Iterable[Mapping[str, Array]]) -> list[Point]:
        """Return the points that the op and its reference accept, as one if the op is elementwise; none is singular."""
        accepted = list[Point]()
        for inputs in drawn:
            with contextlib.suppress(Unprocessable):
                point = self.bind(inputs, self.widest)
                if has_reference(point) and not is_singular(point):
                    accepted.append(point)
        if self.batching == "elementwise" and accepted:
            return [self._join([point.inputs for point in accepted])]
        return accepted

    @cached_property
    def balanced(self) -> list[Sample]:
        """Samples with balanced directions at the first points whose numbers have very different sizes.

        Each number of an elementwise op is compared separately, and needs none.
        """
        found: list[Sample] = []
        # Directions of such sizes would overflow in half precision.
        is_wide = rounding.eps(self.widest) <= rounding.eps("float32")
        for sample in self.nonsingular if is_wide and self.batching != "elementwise" else ():
            with contextlib.suppress(OpFailed, Unprocessable):
                found += balanced(sample, self.checkpoint)
                if found:
                    found.append(
                        sample.redrawn(self.bind(even(sample, self.rng("even")), self.widest), self.rng("even"))
                    )
            if found:
                break
        return found

    @property
    def nonsingular(self) -> list[Sample]:
        """The subsamples where the op does not declare that derivatives are infinite by nature."""
        return [sample for sample in self.subsamples if not sample.is_singular]

    def bind(self, inputs: Mapping[str, Any], dtype: str) -> Point:
        """Return these inputs as a point. Raises ``Unprocessable`` if the op rejects them."""
        run = {"device": self.options.device, "max_elements": self.options.max_elements}
        return bind(self.op, inputs, self.attrs, dtype, self._decode, mode="graph", **run)

    def in_dtype(self, sample: Sample, dtype: str) -> Sample | None:
        """Return a sample in another dtype, or ``None`` if it overflows or the op rejects it."""
        try:
            narrow = sample.cast(self.bind(sample.point.inputs, dtype))
        except Unprocessable:
            return None
        pairs = zip(sample.point.inputs.values(), narrow.point.inputs.values(), strict=True)
        return narrow if all(np.isfinite(y[np.isfinite(x)]).all() for x, y in pairs) else None

    def widen(self, sample: Sample) -> Sample:
        """Return a sample in the widest dtype, with the same numbers."""
        return sample.cast(self.bind(sample.point.inputs, self.widest))

    def _decode(self, value: Any, dtype: str, loc: Loc) -> Array:
        if isinstance(value, np.ndarray | np.generic):  # NumPy draws a scalar for an input without dimensions
            with np.errstate(over="ignore"):
                part = COMPLEX.get(dtype, dtype)  # such arrays have pairs already
                return np.asarray(cast(Array, value)).astype(DTYPES[part].numpy)
        return self.decode(value, dtype, loc)

    def _join(self, parts: list[Mapping[str, Array]]) -> Point:
        """Return one point of an elementwise op with the numbers of many, in one dimension."""
        every = {slot.name: np.concatenate([np.ravel(part[slot.name]) for part in parts]) for slot in self.op.inputs}
        return self.bind(every, self.widest)
