"""The cases of the table of tests: every op of the registry at every example, with its results and their error bounds.

The bound of every comparison is that of a *mixed stable* algorithm: its result is within a few units of rounding of the
exact result for inputs that are themselves off by a few units. So a result y with sensitivity L to a relative change of
the inputs may be off by ``C eps (max(1, |y|) + L)``, where 1 stands for the constants in an op (as in 1 + eˣ).
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import numpy as np

from app.autodiff import derivatives, matrices
from app.autodiff.absent import Absent
from app.autodiff.binding import bind
from app.autodiff.point import Point
from app.settings import Settings
from app.tensors.dtypes import DTYPES
from ops import FLOATS, Array, Example, Mode, Op, discover

REGISTRY = discover(Settings().ops_path)
DEVICE = "/device:CPU:0"
WIDEST = "float64"

# The number of roundings of one element of a result: no op has more than a dozen in a row, and errors of either sign
# partly cancel.
ROUNDINGS = 8
# A relative step for the sensitivity: small enough to be local, large enough for a difference of float64 numbers.
STEP = 2.0**-20
DRAWS = 2

Kind = Literal["forward", "gradients", "vjp", "jvp", "hvp", "jacobian", "hessian"]
Named = Mapping[str, Array]
Answer = dict[str, Array | Absent]


@dataclass(frozen=True, eq=False)
class Case:
    """An op at one of its examples."""

    op: Op
    example: Example

    def __str__(self) -> str:
        return f"{self.op.name}-{self.example.name}"

    @property
    def dtypes(self) -> list[str]:
        return [dtype for dtype in self.op.dtypes if dtype in FLOATS]

    @property
    def exact(self) -> str:
        """The dtype of the reference result."""
        return WIDEST if WIDEST in self.dtypes else max(self.dtypes, key=lambda dtype: -eps(dtype))

    @property
    def linear(self) -> bool:
        return self.op.claim(self.point().spec.attrs).linear

    @property
    def elementwise(self) -> bool:
        return self.point().spec.batching == "elementwise"

    @property
    def order(self) -> int:
        """The number of orders of gradients to compare: ops that multiply matrices take long to trace."""
        return 4 if self.elementwise else 2

    @property
    def rng(self) -> np.random.Generator:
        """A generator for this case, always with the same seed."""
        return np.random.default_rng(zlib.crc32(str(self).encode()))

    def point(self, dtype: str = "", mode: Mode = "graph", inputs: Mapping[str, Any] | None = None) -> Point:
        """Return the example (or other inputs, at its attributes) as a point."""
        values = self.example.inputs if inputs is None else inputs
        run = {"mode": mode, "device": DEVICE, "max_elements": 1 << 25}
        return bind(self.op, values, self.example.attrs, dtype or self.exact, _cast, **run)


def cases(ops: Sequence[Op] = ()) -> list[Case]:
    return [Case(op, example) for op in ops or REGISTRY.ops.values() for example in op.examples]


def eps(dtype: str) -> float:
    """The relative distance of neighbouring numbers."""
    return {"bfloat16": 2.0**-7, "float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}[dtype]


def tiny(dtype: str) -> float:
    """The least normal number: the CPU's kernels flush smaller ones to 0, except where a graph is simplified."""
    return {"bfloat16": 2.0**-126, "float16": 2.0**-14, "float32": 2.0**-126, "float64": 2.0**-1022}[dtype]


def draw(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    """Draw numbers of either sign with magnitudes of 0.5 to 2, never 1, all representable in every dtype."""
    return (2 * rng.integers(32, 128, shape) + 1) / 128 * rng.choice([-1.0, 1.0], shape)


def directions(point: Point, rng: np.random.Generator) -> dict[str, dict[str, Array]]:
    """Draw a cotangent of every differentiable output, and a tangent and a vector of every differentiable input."""
    op = point.op
    inputs = {name: point.inputs[name].shape for name in point.spec.inputs.differentiable}
    shapes = derivatives.output_shapes(point)
    outputs = {name: shapes[name] for name in point.spec.outputs.differentiable}
    wanted = {"cotangents": outputs, "tangents": inputs, "vectors": inputs}
    dtypes = {slot.name: op.dtype_of(slot, point.spec.dtype) for slot in (*op.inputs, *op.outputs)}
    return {
        field: {name: draw(rng, shape).astype(DTYPES[dtypes[name]].numpy) for name, shape in shapes.items()}
        for field, shapes in wanted.items()
    }


def answer(point: Point, kind: Kind, along: Mapping[str, Named], order: int = 2, *, batched: bool = False) -> Answer:
    """Evaluate one operation with respect to every input; return its results by path, such as ``gradients/1/x``."""
    wrt = tuple(slot.name for slot in point.op.inputs)
    live = tuple(slot.name for slot in point.op.outputs)
    dys = dict(along.get("cotangents", {})) or None
    match kind:
        case "forward":
            return _named("outputs", derivatives.forward(point).run())
        case "vjp":
            outputs, found = derivatives.vjp(point, wrt, dys, batched=batched, outputs=not batched).run()
            return _named("outputs", outputs) | _named("gradients", found)
        case "gradients":
            outputs, levels = derivatives.gradients(point, wrt, dys, order).run()
            found = [_named("outputs", outputs), *(_named(f"gradients/{i}", level) for i, level in enumerate(levels))]
            return {key: value for level in found for key, value in level.items()}
        case "jvp":
            return _named("tangents", derivatives.jvp(point, along["tangents"], batched=batched).run())
        case "hvp":
            return _named("products", derivatives.hvp(point, wrt, dys, along["vectors"], batched=batched).run())
        case "jacobian":
            blocks = matrices.jacobian(point, live, wrt, _never_cancel)
        case "hessian":
            blocks = matrices.hessian(point, wrt, dys, _never_cancel)
    return {f"{kind}/{a}/{b}": block for a, row in blocks.items() for b, block in row.items()}


def kinds(case: Case) -> list[Kind]:
    """Return the operations to compare; a gradient that is not linear has no jvp."""
    return ["gradients", "vjp", "hvp", *(["jvp"] if case.linear else [])]


def bounds(f: Callable[[Named], Mapping[str, Any]], leaves: Named, unit: float, *, elementwise: bool = False) -> dict:
    """Return the error bounds of a mixed stable algorithm for f that rounds numbers to ``unit``.

    The sensitivity is that to random relative changes of the leaves, element by element for an elementwise op, else
    relative to the largest element of each. A jump does not count: half the step jumps as far as the whole step, and
    only the part of the change that is halved counts, since rounding does not decide the side of a jump. Sums over n
    elements add n roundings.
    """
    rng = np.random.default_rng(0)
    at = {name: np.asarray(value, np.float64) for name, value in f(leaves).items() if not isinstance(value, Absent)}
    largest = {name: np.zeros_like(value) for name, value in at.items()}
    for _ in range(DRAWS):
        signs = {name: rng.choice([-1.0, 1.0], np.shape(leaf)) for name, leaf in leaves.items()}
        whole, half = (f(_moved(leaves, signs, step, elementwise)) for step in (STEP, STEP / 2))
        for name in at:
            with np.errstate(invalid="ignore"):
                change = 2 * np.abs(np.asarray(whole[name], np.float64) - half[name]) / STEP
            largest[name] = np.fmax(largest[name], np.nan_to_num(change, nan=0.0, posinf=0.0))
    terms = 1 if elementwise else max((max(np.shape(leaf), default=1) for leaf in leaves.values()), default=1)
    return {
        name: ROUNDINGS * terms * unit * (np.maximum(1, _size(at[name], elementwise)) + largest[name]) for name in at
    }


def _size(value: Array, elementwise: bool) -> Array:
    finite = np.abs(np.nan_to_num(value, nan=0.0, posinf=0.0, neginf=0.0))
    return finite if elementwise else finite.max(initial=0.0)


def _moved(leaves: Named, signs: Named, step: float, elementwise: bool) -> dict[str, Array]:
    sizes = {name: np.abs(leaf) if elementwise else np.abs(leaf).max(initial=0) for name, leaf in leaves.items()}
    return {name: leaf + step * sizes[name] * signs[name] for name, leaf in leaves.items()}


def moved_to(point: Point, leaves: Named) -> Point:
    """Return the point with the inputs in ``leaves`` replaced."""
    arrays = {name: leaves.get(name, value) for name, value in point.inputs.items()}
    return replace(point, inputs={name: np.asarray(value, point.inputs[name].dtype) for name, value in arrays.items()})


def differentiable_inputs(point: Point) -> dict[str, Array]:
    """Return the inputs with a derivative, which may be perturbed."""
    return {name: point.inputs[name] for name in point.spec.inputs.differentiable}


@dataclass(frozen=True)
class Truth:
    """Results in the widest dtype, in mode graph, and the sensitivities that bound other results."""

    found: Answer
    units: Mapping[str, Array]

    def bound(self, name: str, dtype: str) -> Array:
        """Return the error bound of a result in ``dtype``."""
        return eps(dtype) * self.units[name] + tiny(dtype)


def truth(point: Point, kind: Kind, along: Mapping[str, Named], order: int = 2) -> Truth:
    """Evaluate an operation in float64, with its sensitivity to its inputs and directions."""
    leaves = {("inputs", name): value for name, value in differentiable_inputs(point).items()}
    leaves |= {(field, name): value for field, named in along.items() for name, value in named.items()}
    flat = {"/".join(key): value for key, value in leaves.items()}

    def evaluate(moved: Named) -> Answer:
        at = moved_to(point, {name: moved[f"inputs/{name}"] for name in point.inputs if f"inputs/{name}" in moved})
        fields = {field: {name: moved[f"{field}/{name}"] for name in named} for field, named in along.items()}
        return answer(at, kind, fields, order)

    return Truth(evaluate(flat), bounds(evaluate, flat, 1.0, elementwise=point.spec.batching == "elementwise"))


@cache
def truth_of(case: Case, kind: Kind) -> Truth:
    """Return the reference result at an example and its directions, shared by all modes and tests."""
    point = case.point()
    return truth(point, kind, used(directions(point, case.rng), kind), case.order)


def used(along: Mapping[str, Named], kind: Kind) -> dict[str, Named]:
    """Return the directions that an operation takes."""
    fields = {"vjp": ["cotangents"], "gradients": ["cotangents"], "jvp": ["tangents"], "hvp": ["cotangents", "vectors"]}
    return {field: along[field] for field in [*fields.get(kind, []), *(["cotangents"] if kind == "hessian" else [])]}


def close(found: Any, expected: Any, bound: Any, what: str) -> None:
    """Fail if numbers differ by more than the bound; NaN and infinities must match exactly.

    A missing gradient equals an exact zero, because TensorFlow itself is not consistent there.
    """
    if isinstance(found, Absent) and isinstance(expected, Absent):
        assert found == expected, f"{what}: expected {expected.value}, got {found.value}"
        return
    if isinstance(found, Absent) or isinstance(expected, Absent):
        value, absent = (expected, found) if isinstance(found, Absent) else (found, expected)
        assert absent == Absent.DISCONNECTED, f"{what}: one is not differentiable, the other {value}"
        assert not np.any(value), f"{what}: one is missing, the other {value}"
        return
    assert np.shape(found) == np.shape(expected), f"{what}: expected shape {np.shape(expected)}, got {np.shape(found)}"
    a, b = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    with np.errstate(invalid="ignore"):
        right = (np.abs(a - b) <= bound) | (a == b) | (np.isnan(a) & np.isnan(b))
    assert right.all(), f"{what}: expected\n{b}\nwithin\n{bound}\ngot\n{a}"


def _cast(value: Any, dtype: str, at: Any) -> Array:
    del at
    return np.asarray(value, np.float64 if dtype in FLOATS else None).astype(DTYPES[dtype].numpy)


def _named(what: str, values: Mapping[str, Any]) -> Answer:
    return {f"{what}/{name}": value for name, value in values.items()}


def _never_cancel() -> None:
    """Never cancel."""
