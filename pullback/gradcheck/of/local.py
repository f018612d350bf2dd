"""A function of arrays with a gradient, of whatever library, as a model: ``torch+MODULE:FUNCTION``."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from pullback.dtypes import Array
from pullback.errors import BadAnswer, BadArgument, ModelFailed
from pullback.gradcheck import floats
from pullback.gradcheck.function import (
    LARGEST_TOLERANCE,
    Arrays,
    Function,
    Point,
    Request,
    Slot,
    Variant,
    bounded,
    given_array,
    given_inputs,
)
from pullback.gradcheck.of.layouts import LaidOut, Layout, in_order, is_ordered
from pullback.gradcheck.of.library import Library
from pullback.gradcheck.of.source import Spelling
from pullback.gradcheck.of.user_code import told

T = TypeVar("T")
AROUND = 3
"""How many points are the function's own, and around them; the others have zeros, or equal numbers."""
SOME = 0.5
"""How many numbers of a point are zeros, or equal ones."""
MAX_REASON = 200
"""How many characters of a library's reason a remark has."""
NARROWED = "float32", "float16"
"""The dtype that values may be rounded to unseen, and one that would have whole numbers too."""
LEAST_TOLERANCE = 2.0**-34
"""What a loop may be off that ends where a step is at the level of rounding, relative to the largest number."""


def iterates(call: Callable[[T], Any], points: Sequence[T]) -> bool:
    """Return whether a function calls others more often at some points than at others, and as often when repeated."""
    counts = [(_calls(call, point), _calls(call, point)) for point in points]
    return all(once == again for once, again in counts) and len({*counts}) > 1


def _calls(call: Callable[[T], Any], point: T) -> int:
    """Return how many functions of Python and of C a call calls, on this thread."""
    count, before = 0, sys.getprofile()

    def seen(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        call(point)
    finally:
        sys.setprofile(before)
    return count


class Domain(NamedTuple):
    """The interval in which the numbers of an input lie; its ends belong to it."""

    low: float = -np.inf
    high: float = np.inf

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Return random numbers of the interval."""
        if np.isfinite(self.low) and np.isfinite(self.high):
            return rng.uniform(self.low, self.high, shape)
        if np.isfinite(self.low):
            return self.low + np.exp(rng.normal(size=shape) - 0.5)
        if np.isfinite(self.high):
            return self.high - np.exp(rng.normal(size=shape) - 0.5)
        return rng.normal(size=shape)


@dataclass(frozen=True)
class Given:
    """What a user says of a function's arguments: numbers and shapes by name, domains, and the name of its gradient.

    It is compared with itself in narrower ``dtypes`` and, if it ``compiles``, compiled by a library that takes long.
    """

    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    domains: Mapping[str, Domain] = field(default_factory=dict[str, Domain])
    dtypes: Sequence[str] = ()
    vjp: str | None = None
    compiles: bool = False


class LocalFunction:
    """A function that is computed in one dtype. Another of its ``variants`` is narrower, or compiled."""

    one_by_one, takes_subsets, is_energy = False, True, False

    def __init__(
        self,
        target: str,
        library: Library,
        start: Arrays,
        domains: Mapping[str, Domain],
        dtype: str,
        *,
        layout: Layout | None = None,
    ) -> None:
        """Evaluate the function; ``start`` has its arguments, and ``layout`` how they lie in memory.

        Raises ``BadArgument`` for a function that cannot be checked, with the reason.
        """
        library = library if layout is None else LaidOut(library, layout)
        self.name, self.library, self._start, self._domains, self.dtype = target, library, start, domains, dtype
        self.inputs = bounded([Slot(name, x.shape, dtype) for name, x in start.items()], target)
        self.remark, self.spelling = "", Spelling(target)
        self.changed: str | None = ""
        self.tolerance = LEAST_TOLERANCE
        self.variants: Mapping[str, Mapping[tuple[str, str], Variant]] = {}
        self.sizes: Mapping[str, Function] = {}
        self.has_jvp = self.has_hessian = False
        self._layout, point = layout, Point(start)
        try:
            values = self._called(library.values, point)
        except ModelFailed as error:
            raise BadArgument(str(error)) from error
        if not values:
            cure = (
                "return an array that depends on the inputs, not None, a number (.item(), float), integers or complex"
            )
            raise BadArgument(f"{target}: expected a result with floats, got none: {cure}")
        if not all(np.isfinite(floats.decoded(y)).all() for y in values.values()):
            cure = f"give others with --input, or say where they lie: --domain {self.inputs[0].name}=0..inf"
            raise BadArgument(f"{target}: expected arguments with finite values, got NaN or an infinity: {cure}")
        self._cotangents = {name: floats.narrowest((dtype, floats.name_of(y))) for name, y in values.items()}
        inside = floats.narrowest((dtype, library.casts_to or dtype, self._dtype_of_digits(point)))
        self.inputs = [Slot(slot.name, slot.shape, inside) for slot in self.inputs]
        slots = [Slot(name, y.shape, floats.narrowest((inside, self._cotangents[name]))) for name, y in values.items()]
        self.outputs = bounded(slots, target)
        if any(slot.dtype != dtype for slot in slots):
            self.remark = f"The function computes in {slots[0].dtype}, though its inputs have {dtype}."
        self.remark = f"{self.remark} {library.remark}".strip()

    def look_for_derivatives(self) -> None:
        """See whether the function has a forward mode and a second order, and whether it iterates."""
        x, y, point = self.inputs[0].name, self.outputs[0], Point(self._start)
        v, dy = self._start[x], np.ones(y.shape)
        self.has_jvp = self._has("forward mode", lambda: self.jvp(point, x, v, [y.name]))
        self.has_hessian = self._has("second order", lambda: self.hessian(point, y.name, (x, x), dy, v))
        if self.library.has_solver or self._counts_differ():
            self.tolerance = LARGEST_TOLERANCE

    def _counts_differ(self) -> bool:
        rng, start = np.random.default_rng(0), {name: self._exact(x) for name, x in self._start.items()}
        near = [{name: self._near(name, x, rng) for name, x in start.items()} for _ in range(2)]
        points = [Point(start), *map(Point, near)]
        try:
            return iterates(lambda point: self._called(self.library.values, point), points)
        except (NotImplementedError, ModelFailed, BadAnswer):
            return False

    def _dtype_of_digits(self, point: Point) -> str:
        """Return float32 if all values around a point have no more digits, though not as few as whole numbers."""
        rng = np.random.default_rng(0)
        near = {name: self._near(name, self._exact(x), rng) for name, x in point.inputs.items()}
        try:
            found = self._called(self.library.values, Point(near))
        except (NotImplementedError, ModelFailed):
            return self.dtype
        values = np.concatenate([np.ravel(floats.decoded(y)) for y in found.values()])
        is_narrow, is_narrower = (np.array_equal(values, floats.rounded(values, dtype)) for dtype in NARROWED)
        return NARROWED[0] if is_narrow and not is_narrower else self.dtype

    def nearest(self, inputs: Arrays, cotangents: Arrays) -> tuple[Arrays, Arrays]:
        """Return the inputs and the cotangents nearest to these that it takes: in its dtype and its layout."""
        exact = {name: self._exact(x) for name, x in inputs.items()}
        if self._layout is None:
            return exact, cotangents
        return (
            {name: self._layout.nearest_inputs(x) for name, x in exact.items()},
            {name: self._layout.nearest_cotangents(dy) for name, dy in cotangents.items()},
        )

    def points(self, given: Sequence[Any], count: int, rng: np.random.Generator) -> list[Point]:
        """Return the function's own numbers, others around them, and some with zeros and with equal numbers."""
        if given:
            by_name = [given_inputs(each, self.inputs) for each in given]
            return [Point({slot.name: given_array(each[slot.name], slot) for slot in self.inputs}) for each in by_name]
        own = {name: self._exact(x) for name, x in self._start.items()}
        found = [own, *({name: self._near(name, x, rng) for name, x in own.items()} for _ in range(count - 1))]
        for i, special in enumerate(found[AROUND:]):
            for name, x in special.items():
                value = x.flat[0] if i % 2 and x.size else 0.0
                if not is_ordered(own[name]):
                    special[name] = self._within(name, np.where(rng.random(x.shape) < SOME, value, x))
        return [Point(inputs, is_special=i >= AROUND) for i, inputs in enumerate(found)]

    def values(self, point: Point) -> Arrays:
        """Return the outputs."""
        return self._floats(self._called(self.library.values, point), {slot.name: slot.shape for slot in self.outputs})

    def vjp(self, point: Point, output: str, cotangent: Array, inputs: Sequence[str]) -> Arrays:
        """Return Jᵀ dy by input."""
        dy = self._of_output(output, cotangent)
        found = self._called(lambda leaves: self.library.vjp(leaves, output, dy, inputs), point)
        return self._floats(found, {name: point.inputs[name].shape for name in inputs})

    def jvp(self, point: Point, name: str, tangent: Array, outputs: Sequence[str]) -> Arrays:
        """Return J tx by output."""
        tx = floats.encoded(tangent, self.dtype)
        found = self._called(lambda leaves: self.library.jvp(leaves, name, tx, outputs), point)
        return self._floats(found, {slot.name: slot.shape for slot in self.outputs if slot.name in outputs})

    def hessian(self, point: Point, output: str, inputs: tuple[str, str], cotangent: Array, vector: Array) -> Array:
        """Return ∂/∂b [Jₐᵀ dy] · v, of the shape of a."""
        dy, v = self._of_output(output, cotangent), floats.encoded(vector, self.dtype)
        found = self._called(lambda leaves: {inputs[0]: self.library.hessian(leaves, output, inputs, dy, v)}, point)
        return self._floats(found, {inputs[0]: point.inputs[inputs[0]].shape})[inputs[0]]

    def request(self, point: Point, output: str, name: str, cotangent: Array) -> Request:
        """Return what is called for the gradient with respect to one input."""
        body = {"inputs": {key: x.tolist() for key, x in point.inputs.items()}, "cotangent": cotangent.tolist()}
        leaves = {key: floats.encoded(x, self.dtype) for key, x in point.inputs.items()}
        dy = self._of_output(output, cotangent)
        source = self.spelling.command(*self.library.source(self.spelling.name, leaves, output, dy, name))
        where = f"the gradient of {output} of {self.name} in {self.dtype}"
        return Request(where, body, name, is_http=False, source=source)

    def evaluation(self, point: Point, output: str) -> Request:
        """Return what is called for an output."""
        body = {"inputs": {key: x.tolist() for key, x in point.inputs.items()}}
        return Request(f"{self.name} in {self.dtype}", body, output, is_http=False)

    def _called(self, call: Callable[[Arrays], dict[str, Array]], point: Point) -> dict[str, Array]:
        """Call the function at a point; an exception of it is ``ModelFailed``."""
        for name, domain in self._domains.items():
            x = point.inputs.get(name, np.zeros(0))
            if ((x < domain.low) | (x > domain.high)).any():
                raise ModelFailed(f"{self.name}: {name} is outside of its domain")
        leaves = {name: floats.encoded(x, self.dtype) for name, x in point.inputs.items()}
        before = {name: x.copy() for name, x in leaves.items()}
        try:
            found = call(leaves)
        except NotImplementedError:
            raise
        except (Exception, SystemExit) as error:
            raise ModelFailed(f"{self.name}: {told(error)}") from error
        for name, x in leaves.items():
            if x.tobytes() != before[name].tobytes():
                self.changed = name
        return found

    def _floats(self, found: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]) -> Arrays:
        """Return results in float64; raise ``BadAnswer`` for other shapes."""
        for name, shape in shapes.items():
            if name not in found or found[name].shape != shape:
                got = list(found[name].shape) if name in found else "nothing"
                raise BadAnswer(f"{self.name}, {name}: expected shape {list(shape)}, got {got}")
        return {name: floats.decoded(found[name]) for name in shapes}

    def _of_output(self, output: str, cotangent: Array) -> Array:
        return floats.encoded(cotangent, self._cotangents[output])

    def _has(self, what: str, derivative: Callable[[], Any]) -> bool:
        """Return whether the function has a derivative; the remark says why not, if the library does."""
        try:
            derivative()
        except (NotImplementedError, ModelFailed, BadAnswer) as error:
            if why := next(iter(str(error).strip().splitlines()), "").removesuffix("."):
                why = why if len(why) <= MAX_REASON else f"{why[:MAX_REASON]}…"
                self.remark = f"{self.remark} It has no {what}: {why}.".strip()
            return False
        return True

    def _exact(self, x: Array) -> Array:
        return floats.rounded(np.asarray(x, np.float64), self.inputs[0].dtype)

    def _near(self, name: str, x: Array, rng: np.random.Generator) -> Array:
        """Return other numbers of a size like those, in the domain."""
        scale = np.abs(x)[x != 0].mean() if x.any() else 1.0
        moved = np.where(x == 0, scale * rng.normal(size=x.shape), x * rng.uniform(0.5, 1.5, x.shape))
        return self._within(name, in_order(moved, x))

    def _within(self, name: str, x: Array) -> Array:
        """Return numbers in the domain, exact in the dtype."""
        return self._exact(np.clip(x, *self._domains.get(name, Domain())))
