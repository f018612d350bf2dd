"""What is checked: functions of float arrays, with a vjp, and perhaps a jvp and a Hessian."""

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

import numpy as np

from pullback.dtypes import Array
from pullback.errors import BadAnswer, BadArgument
from pullback.gradcheck import floats

Arrays: TypeAlias = Mapping[str, Array]

LARGEST_TOLERANCE = 2.0**-13
"""The largest noise of a solver behind a server, relative to its largest number: more is what the function does."""
MAX_SHOWN = 80
MAX_NUMBERS, MAX_SLOTS = 1 << 22, 1000
"""The most numbers of all inputs or all outputs together, and how many inputs or outputs there may be."""
FREE_SIZE = 3
"""The size of a dimension that a schema leaves open."""


class Slot(NamedTuple):
    """An input or an output that has derivatives, with the dtype in which the server computes it."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float64"


@dataclass(frozen=True)
class Point:
    """The numbers of the inputs that have derivatives, and the server's other arguments as JSON.

    One that ``is_special`` has zeros or equal numbers, where a function may have a kink.
    """

    inputs: Arrays
    others: Mapping[str, Any] = field(default_factory=dict[str, Any])
    is_special: bool = False


class Request(NamedTuple):
    """A request whose answer has the numbers of a gradient, and where in the answer they are."""

    url: str
    body: Any
    shows: str
    is_http: bool = True
    source: str = ""
    """The function that computes the numbers, as text; "" for a request over HTTP."""

    @property
    def where(self) -> str:
        """What is asked."""
        return f"POST {self.url}" if self.is_http else self.url

    @property
    def command(self) -> str:
        """The request as a command line, or what is asked and where."""
        return self.source or self.command_with(self.text)

    def command_with(self, body: str) -> str:
        """Return the command line with this body: JSON, or @ and the name of a file."""
        if not self.is_http:
            return f"{self.url} at {body}"
        return f"curl -s {shlex.quote(self.url)} -H 'Content-Type: application/json' -d {shlex.quote(body)}"

    @property
    def text(self) -> str:
        """The body as JSON."""
        return json.dumps(self.body, separators=(",", ":"))


class Function(Protocol):
    """A function. ``ModelFailed`` means that it refuses a point, ``BadAnswer`` that it answers nonsense."""

    name: str
    inputs: list[Slot]
    outputs: list[Slot]
    has_jvp: bool
    has_hessian: bool
    one_by_one: bool
    """Whether a request is for the derivative of one output with respect to one input."""
    takes_subsets: bool
    """Whether a request names the inputs of its gradients: any of them."""
    is_energy: bool
    """Whether the Jacobian of the gradient is computed from the gradients, and compared with its transpose."""
    remark: str
    """What of the function is not checked, or an empty text."""
    tolerance: float
    """The error that the tolerance of a solver may explain, relative to the largest number of a value or gradient."""
    variants: Mapping[str, Mapping[tuple[str, str], "Variant"]]
    """The same function run in other ways, by check; with how it runs then and here: ("in float32", "in float64")."""
    sizes: Mapping[str, "Function"]
    """The same function with arguments of other sizes, which the text says."""
    changed: str | None
    """The input that a call has written into, or ""; ``None`` where no call can."""

    def points(self, given: Sequence[Any], count: int, rng: np.random.Generator) -> list[Point]:
        """Return the given points or, without any, ``count`` of the protocol's own sizes and examples."""
        ...

    def values(self, point: Point) -> Arrays:
        """Return the outputs."""
        ...

    def vjp(self, point: Point, output: str, cotangent: Array, inputs: Sequence[str]) -> Arrays:
        """Return Jᵀ dy by input, where J is the Jacobian of one output."""
        ...

    def jvp(self, point: Point, name: str, tangent: Array, outputs: Sequence[str]) -> Arrays:
        """Return J tx by output, where J is the Jacobian with respect to one input."""
        ...

    def hessian(self, point: Point, output: str, inputs: tuple[str, str], cotangent: Array, vector: Array) -> Array:
        """Return ∂/∂b [Jₐᵀ dy] · v, of the shape of a, for inputs (a, b)."""
        ...

    def evaluation(self, point: Point, output: str) -> Request:
        """Return the request for the values of an output."""
        ...

    def request(self, point: Point, output: str, name: str, cotangent: Array) -> Request:
        """Return the request for the gradient with respect to one input."""
        ...


class Variant(Function, Protocol):
    """The same function run in another way."""

    def nearest(self, inputs: Arrays, cotangents: Arrays) -> tuple[Arrays, Arrays]:
        """Return the inputs and the cotangents nearest to these that it takes."""
        ...


class Model:
    """What models outside of this process have in common."""

    one_by_one = takes_subsets = has_jvp = has_hessian = is_energy = False
    tolerance = LARGEST_TOLERANCE
    variants: Mapping[str, Mapping[tuple[str, str], Variant]] = {}
    sizes: Mapping[str, Function] = {}
    changed: str | None = None
    remark = ""


def array_of(value: Any, shape: tuple[int, ...], what: str) -> Array:
    """Return numbers of an answer as float64; raise ``BadAnswer`` for other values, or another shape."""
    try:
        found: Array = np.asarray(value)
    except (ValueError, OverflowError, RecursionError) as error:
        raise BadAnswer(
            f"{what}: expected numbers of shape {list(shape)}, got nested lists of uneven length"
        ) from error
    if found.size and found.dtype.kind not in "fiu":
        raise BadAnswer(f"{what}: expected numbers of shape {list(shape)}, got {shown(value)}")
    if found.shape != shape:
        raise BadAnswer(f"{what}: expected numbers of shape {list(shape)}, got shape {list(found.shape)}")
    return found.astype(np.float64)


def bounded(slots: list[Slot], where: str) -> list[Slot]:
    """Return the inputs or the outputs; raise ``BadAnswer`` for too many, or too many numbers in all."""
    if len(slots) > MAX_SLOTS or sum(math.prod(slot.shape) for slot in slots) > MAX_NUMBERS:
        expected = f"at most {MAX_SLOTS} inputs or outputs, of at most {MAX_NUMBERS} numbers in all"
        raise BadAnswer(f"{where}: expected {expected}, got more")
    return slots


def as_object(value: Any) -> dict[str, Any] | None:
    """Return a value of JSON that is an object, ``None`` for others."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


def member(answer: Any, key: str, what: str) -> Any:
    """Return a member of a JSON object; raise ``BadAnswer`` if it has none, or is no object."""
    found = as_object(answer)
    if found is None or key not in found:
        raise BadAnswer(f"{what}: expected an object with {key!r}, got {shown(answer)}")
    return found[key]


def elements(value: Any, what: str) -> list[Any]:
    """Return a JSON list; raise ``BadAnswer`` for anything else."""
    if not isinstance(value, list):
        raise BadAnswer(f"{what}: expected a list, got {shown(value)}")
    return cast(list[Any], value)


def shown(value: object) -> str:
    """Return a value for an error."""
    # Before the text is made, which takes long for millions of elements.
    value = cast(list[object], value)[:MAX_SHOWN] if isinstance(value, list) else value
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def given_inputs(given: Any, slots: Sequence[Slot]) -> dict[str, Any]:
    """Return what --inputs has for each name: an object, or a list in the order of the inputs.

    Raises ``BadArgument`` for anything else.
    """
    names = [slot.name for slot in slots]
    by_name = as_object(given)
    if isinstance(given, list) and len(cast(list[Any], given)) == len(names):
        by_name = dict(zip(names, cast(list[Any], given), strict=True))
    if by_name is None or set(by_name) != set(names):
        wanted = ", ".join(f"{slot.name} of shape {list(slot.shape)}" for slot in slots)
        raise BadArgument(f"--inputs: expected a list, or an object, with {wanted}, got {shown(cast(object, given))}")
    return by_name


def given_object(given: Any) -> dict[str, Any]:
    """Return an object of --inputs; raise ``BadArgument`` for anything else."""
    found = as_object(given)
    if not found:
        raise BadArgument(f"--inputs: expected an object with all inputs, got {shown(given)}")
    return found


def given_array(value: Any, slot: Slot) -> Array:
    """Return the numbers of an input that the user gives; raise ``BadArgument``."""
    try:
        found = array_of(value, slot.shape, f"--inputs: {slot.name}")
    except BadAnswer as error:
        raise BadArgument(str(error)) from error
    if not np.isfinite(found).all():
        raise BadArgument(f"--inputs: {slot.name}: expected finite numbers, got NaN or an infinity")
    return floats.rounded(found, slot.dtype)


def shapes_of(points: Sequence[Point]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each input, the same at all points; raise ``BadArgument`` if they differ."""
    shapes = [{name: x.shape for name, x in point.inputs.items()} for point in points]
    if any(each != shapes[0] for each in shapes):
        raise BadArgument(f"--inputs: expected points with the same shapes, {shapes[0]}: check others apart")
    return shapes[0]


def draw_inputs(slots: Sequence[Slot], rng: np.random.Generator) -> dict[str, Array]:
    """Return random numbers from 1/4 to 1, which most functions accept, exact in the dtypes of the inputs."""
    return {slot.name: floats.rounded(rng.uniform(0.25, 1.0, slot.shape), slot.dtype) for slot in slots}
