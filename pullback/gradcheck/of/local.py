"""A function of arrays with a gradient, of whatever library, as a model: ``torch+MODULE:FUNCTION``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from pullback.dtypes import Array
from pullback.errors import BadAnswer, BadArgument, ModelFailed
from pullback.gradcheck.function import (
    MAX_SHOWN,
    Arrays,
    Function,
    Point,
    Request,
    Slot,
    bounded,
    given_array,
    given_inputs,
    shown,
)
from pullback.gradcheck.of.library import Library
from pullback.gradcheck.of.source import Spelling
from pullback.gradcheck.of.strided import Strided
from pullback.gradcheck.of.trees import Tree, as_arrays
from pullback.gradcheck.of.user_code import told, within

WIDE = "float64"
AROUND = 3
"""How many points are the function's own, and around them; the others have zeros, or equal numbers."""
SOME = 0.5
"""How many numbers of a point are zeros, or equal ones."""


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
    """What a user says of a function's arguments: numbers and shapes by name, domains, and the name of its gradient."""

    inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    domains: Mapping[str, Domain] = field(default_factory=dict[str, Domain])
    dtypes: Sequence[str] = ()
    vjp: str | None = None


class LocalFunction:
    """A function that is computed in one dtype. Another of its ``variants`` is narrower, or compiled."""

    one_by_one, takes_subsets, is_energy, tolerance = False, True, False, 0.0

    def __init__(self, target: str, library: Library, start: Arrays, domains: Mapping[str, Domain], dtype: str) -> None:
        """Evaluate the function, and see which derivatives it has; ``start`` has the arguments in their own dtypes.

        Raises ``BadArgument`` for a function that cannot be checked, with the reason.
        """
        self.name, self._library, self._start, self._domains, self.dtype = target, library, start, domains, dtype
        self.inputs = bounded([Slot(name, x.shape, dtype) for name, x in start.items()], target)
        self.remark, self.spelling = "", Spelling(target)
        self.changed: str | None = ""
        self.variants: Mapping[str, Mapping[tuple[str, str], Function]] = {}
        point = Point(start)
        try:
            values = self._called(library.values, point)
        except ModelFailed as error:
            raise BadArgument(str(error)) from error
        if not values:
            cure = (
                "return an array that depends on the inputs, not None, a number (.item(), float), integers or complex"
            )
            raise BadArgument(f"{target}: expected a result with floats, got none: {cure}")
        if not all(np.isfinite(y).all() for y in values.values()):
            cure = f"give others with --input, or say where they lie: --domain {self.inputs[0].name}=0..inf"
            raise BadArgument(f"{target}: expected arguments with finite values, got NaN or an infinity: {cure}")
        slots = [Slot(name, y.shape, min((dtype, y.dtype.name), key=_bits)) for name, y in values.items()]
        self.outputs = bounded(slots, target)
        if any(slot.dtype != dtype for slot in slots):
            self.remark = f"The function computes in {slots[0].dtype}, though its inputs have {dtype}."
        self.remark = f"{self.remark} {library.remark}".strip()
        x, y, dy = self.inputs[0].name, slots[0].name, np.ones(slots[0].shape)
        self.has_jvp = self._has("forward mode", lambda: self.jvp(point, x, start[x], [y]))
        self.has_hessian = self._has("second order", lambda: self.hessian(point, y, (x, x), dy, start[x]))

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
                special[name] = self._within(name, np.where(rng.random(x.shape) < SOME, value, x))
        return [Point(inputs, is_special=i >= AROUND) for i, inputs in enumerate(found)]

    def values(self, point: Point) -> Arrays:
        """Return the outputs."""
        return self._floats(self._called(self._library.values, point), {slot.name: slot.shape for slot in self.outputs})

    def vjp(self, point: Point, output: str, cotangent: Array, inputs: Sequence[str]) -> Arrays:
        """Return Jᵀ dy by input."""
        dy = self._of_output(output, cotangent)
        found = self._called(lambda leaves: self._library.vjp(leaves, output, dy, inputs), point)
        return self._floats(found, {name: point.inputs[name].shape for name in inputs})

    def jvp(self, point: Point, name: str, tangent: Array, outputs: Sequence[str]) -> Arrays:
        """Return J tx by output."""
        tx = np.array(tangent, np.dtype(self.dtype))
        found = self._called(lambda leaves: self._library.jvp(leaves, name, tx, outputs), point)
        return self._floats(found, {slot.name: slot.shape for slot in self.outputs if slot.name in outputs})

    def hessian(self, point: Point, output: str, inputs: tuple[str, str], cotangent: Array, vector: Array) -> Array:
        """Return ∂/∂b [Jₐᵀ dy] · v, of the shape of a."""
        dy, v = self._of_output(output, cotangent), np.array(vector, np.dtype(self.dtype))
        found = self._called(lambda leaves: {inputs[0]: self._library.hessian(leaves, output, inputs, dy, v)}, point)
        return self._floats(found, {inputs[0]: point.inputs[inputs[0]].shape})[inputs[0]]

    def request(self, point: Point, output: str, name: str, cotangent: Array) -> Request:
        """Return what is called for the gradient with respect to one input."""
        body = {"inputs": {key: x.tolist() for key, x in point.inputs.items()}, "cotangent": cotangent.tolist()}
        leaves = {key: np.array(x, np.dtype(self.dtype)) for key, x in point.inputs.items()}
        dy = self._of_output(output, cotangent)
        source = self.spelling.command(*self._library.source(self.spelling.name, leaves, output, dy, name))
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
        leaves = {name: np.array(x, np.dtype(self.dtype)) for name, x in point.inputs.items()}
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
        return {name: found[name].astype(np.float64) for name in shapes}

    def _of_output(self, output: str, cotangent: Array) -> Array:
        dtype = next(slot.dtype for slot in self.outputs if slot.name == output)
        return np.array(cotangent, np.dtype(dtype))

    def _has(self, what: str, derivative: Callable[[], Any]) -> bool:
        """Return whether the function has a derivative; the remark says why not, if the library does."""
        try:
            derivative()
        except (NotImplementedError, ModelFailed, BadAnswer) as error:
            if text := str(error)[:MAX_SHOWN]:
                self.remark = f"{self.remark} It has no {what}: {text}.".strip()
            return False
        return True

    def _exact(self, x: Array) -> Array:
        return np.asarray(x, np.dtype(self.dtype)).astype(np.float64)

    def _near(self, name: str, x: Array, rng: np.random.Generator) -> Array:
        """Return other numbers of a size like those, in the domain."""
        scale = np.abs(x)[x != 0].mean() if x.any() else 1.0
        moved = np.where(x == 0, scale * rng.normal(size=x.shape), x * rng.uniform(0.5, 1.5, x.shape))
        return self._within(name, moved)

    def _within(self, name: str, x: Array) -> Array:
        """Return numbers in the domain, exact in the dtype."""
        return self._exact(np.clip(x, *self._domains.get(name, Domain())))


def local_function(
    target: str, library: Library, arguments: Mapping[str, Tree], given: Given, limit_s: float | None = None
) -> LocalFunction:
    """Return the function as a model in float64, with a variant for each narrower dtype, and mode.

    The dtypes are those of the arguments, and the ``given`` ones. A function that takes no float64 is a model in its
    own dtype. With ``limit_s``, another thread makes the first calls, and may take so many seconds for each model.
    """
    start = {name: _drawn(x, given.domains.get(name)) for name, x in library.leaves(as_arrays(arguments)).items()}
    if not start:
        expected = "an argument with floats, which are not complex"
        raise BadArgument(f"{target}: expected {expected}, got {shown(dict(arguments))}")
    own = min((x.dtype.name for x in start.values()), key=_bits)
    narrower = dict.fromkeys(dtype for dtype in (own, *given.dtypes) if dtype != WIDE)
    numbers = {name: x.astype(np.float64) for name, x in start.items()}

    def of(dtype: str, function: Library = library) -> LocalFunction:
        return within(limit_s, lambda: LocalFunction(target, function, numbers, given.domains, dtype))

    try:
        found = of(WIDE)
    except BadArgument:
        if own == WIDE:
            raise
        found, narrower = of(own), dict.fromkeys(given.dtypes)
        found.remark = f"The function takes no float64: it was checked in {own} alone. {found.remark}".rstrip()
    variants = dict[str, dict[tuple[str, str], Function]]()
    if narrower:
        variants["dtypes"] = {(f"in {dtype}", f"in {found.dtype}"): of(dtype) for dtype in narrower}
    if (other := library.other()) is not None:
        modes = (f"in mode {other.mode}", f"in mode {library.mode}")
        variants["modes"] = {modes: of(found.dtype, other)}
    if library.has_layouts:
        try:
            layouts = ("of strided arrays", "of contiguous ones")
            variants["layouts"] = {layouts: of(found.dtype, Strided(library))}
        except BadArgument as error:
            found.remark = f"{found.remark} It takes no strided arrays: {error}".lstrip()
    found.variants = variants
    return found


def _drawn(x: Array, domain: Domain | None) -> Array:
    """Return the numbers of an argument, moved into its domain."""
    return x if domain is None else np.clip(x, domain.low, domain.high).astype(x.dtype)


def _bits(dtype: str) -> int:
    return int(np.finfo(dtype).bits)
