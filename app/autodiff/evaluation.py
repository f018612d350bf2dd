"""One program at one point, with what it finds checked: what is run alone, or together with others like it."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Generic, TypeVar, cast, final

import numpy as np

from app.autodiff import padding
from app.autodiff.padding import Found
from app.autodiff.point import Point
from app.autodiff.programs import Kind, Program
from app.runtime import modes
from app.runtime.modes import Key
from app.runtime.op_errors import op_errors
from ops import Array, OpFault

Result = TypeVar("Result")

# Numbers that the directions of one call may come with, 32 MB of float64, and multiply-adds: a second or so.
CALL_ELEMENTS = 1 << 22
CALL_COST = 1 << 33
_BATCHED = ("gradients", "tangents", "products")


@final
@dataclass(eq=False)
class Evaluation(Generic[Result]):
    """A program at a point, and what to make of its results.

    ``batched``: the directions, which are ``along`` or else the cotangents, have a leading axis, and so has what is
    found for each of them.
    """

    point: Point
    kind: Kind
    finish: Callable[[Found], Result]
    wrt: tuple[str, ...] = ()
    cotangents: Mapping[str, Array] | None = None
    along: Mapping[str, Array] = field(default_factory=dict[str, Array])
    order: int = 1
    batched: bool = False
    outputs: bool = False
    program: Program = field(init=False)
    leaves: list[Array] = field(init=False)

    def __post_init__(self) -> None:
        """Find the program, which calls that are alike have in common, and its leaves."""
        spec = self.point.spec
        directions = (*(self.cotangents or {}).values(), *self.along.values())
        self.leaves = [*self.point.inputs.values(), *spec.numbers, *directions]
        self.program = _program(
            spec.op,
            spec.dtype,
            spec.static,
            self.kind,
            self.order,
            self.wrt,
            None if self.cotangents is None else tuple(self.cotangents),
            tuple(self.along),
            self.batched,
            self.outputs,
        )

    @property
    def batch_key(self) -> Hashable | None:
        """What calls must have in common to be run together, ``None`` where this one must be alone."""
        if self.size > padding.SHARED or not self.is_bucketed:
            return None
        return self.program, self.point.spec.batch_key

    @property
    def is_bucketed(self) -> bool:
        """Whether shapes are of no account, because each number depends on its own place alone."""
        return padding.fits(self.program, self.point.spec.mode, self.leaves)

    @property
    def size(self) -> int:
        """How many numbers each leaf of an elementwise op has."""
        return self.leaves[0].size

    def run(self) -> Result:
        """Run it alone, its directions a bounded number at a time.

        Raises ``Unprocessable`` where the op refuses its inputs, and ``OpFailed`` where it fails, or returns what is
        no output or no gradient.
        """
        if self.batched and self._count > rows_per_call(self.point):
            return self.finish(self._run_in_parts())
        return run_together([self])[0]

    @property
    def simpler(self) -> Callable[[], object] | None:
        """The work that tells whether the op refuses its inputs, or whether its gradient is at fault."""
        match self.kind:
            case "forward":
                return None
            case "gradients" | "vjp":
                return Evaluation(self.point, "forward", as_found).run
            case "diagonal" | "vjp_jvp":
                return Evaluation(self.point, "vjp", as_found, wrt=self.wrt, cotangents=self.cotangents).run
            case "jvp" | "hvp" | "second" | "composite":
                return Evaluation(self.point, "vjp", as_found, wrt=tuple(self.along), cotangents=self.cotangents).run

    @property
    def _directions(self) -> Mapping[str, Array]:
        return self.along or self.cotangents or {}

    @property
    def _count(self) -> int:
        return len(next(iter(self._directions.values())))

    def _run_in_parts(self) -> Found:
        """Run it on some directions after the other, and join what comes."""
        count, rows = self._count, rows_per_call(self.point)
        self.point.admit_work(count)
        where = "cotangents" if self.kind == "vjp" else "along"
        parts: list[Found] = []
        for start in range(0, count, rows):
            some = {name: direction[start : start + rows] for name, direction in self._directions.items()}
            chunk: Evaluation[Found] = replace(cast(Evaluation[Found], self), finish=as_found, **{where: some})
            parts.append(chunk.run())
        joined = parts[0]
        for key in [key for key, value in joined.items() if key[0] in _BATCHED and value is not None]:
            joined[key] = np.concatenate([present(part[key]) for part in parts])
        return joined


@lru_cache(maxsize=1024)
def _program(*fields: Any) -> Program:
    """Return the program of these fields, the same one each time: it is looked up by several times a call."""
    return Program(*fields)


def run_together(calls: Sequence[Evaluation[Result]]) -> list[Result]:
    """Run calls of one ``company``, or a single one, in one go; raises as ``Evaluation.run`` does."""
    first = calls[0]
    point, program = first.point, first.program
    with op_errors(point.op.name, first.simpler):
        if not first.is_bucketed:
            return [first.finish(_run_as_it_is(first))]
        try:
            results = padding.run(program, point.spec.mode, [call.leaves for call in calls], point.spec.device)
        except padding.NotElementwise:
            if len(calls) > 1:
                raise
            results = [_run_as_it_is(first)]
    return [call.finish(one) for call, one in zip(calls, results, strict=True)]


def _run_as_it_is(call: Evaluation[Result]) -> Found:
    results = modes.run(call.program, call.point.spec.mode, call.leaves, call.point.spec.device)
    for key, value in results.items():
        if value is not None:
            _check_shape(call.point, results, key, value, batched=call.batched)
    return results


def as_found(results: Found) -> Found:
    """Finish with all that was found."""
    return results


def present(value: Array | None) -> Array:
    """Return what cannot be missing."""
    assert value is not None
    return value


def rows_per_call(point: Point) -> int:
    """Return how many directions one call may take, so that its memory and its time are bounded."""
    outputs = [shape or () for shape in point.output_shapes.values()]
    per_row = point.size + sum(map(math.prod, outputs))
    return max(1, min(CALL_ELEMENTS // (per_row + 1), CALL_COST // (point.cost + 1)))


def _check_shape(point: Point, results: Found, key: Key, value: Array, *, batched: bool) -> None:
    """Refuse an output or a gradient of another shape than it must have: TensorFlow broadcasts such without a word."""
    what, name = key
    if what in ("outputs", "output shape"):
        function, expected = "forward", point.output_shapes[name]
    elif what in ("tangents", "slots"):
        function, expected = "the gradient of the gradient function", _output_shape(results, name)
    else:
        function, expected = "the gradient function", point.inputs[name].shape
    if what in ("output shape", "gradient shape"):
        shape = _told(value)
    else:
        shape = value.shape[int(batched and what != "outputs") :]
    if expected is not None and shape != expected:
        raise OpFault(function, name, expected=f"shape {list(expected)}", got=f"{list(shape)}")


def _output_shape(results: Found, name: str) -> tuple[int, ...]:
    """Return the shape of an output of a run, which came itself or as a tensor that tells it."""
    told = results.get(("output shape", name))
    return _told(told) if told is not None else present(results["outputs", name]).shape


def _told(shape: Array) -> tuple[int, ...]:
    """Return a shape that came as a tensor."""
    return tuple(int(size) for size in shape)
