"""One program at one point: run alone or in one call with similar ones, with its results checked."""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Generic, TypeVar, cast, final

import numpy as np

from app.autodiff import padding
from app.autodiff.point import Arrays, Point
from app.autodiff.programs import Kind, Program, gradient_function
from app.errors import PullbackError
from app.runtime import modes
from app.runtime.modes import Key, KeyedArrays
from app.runtime.op_errors import op_error
from ops import Array, OpFault, located

Result = TypeVar("Result")

# Limits on one call with many directions: numbers (32 MB of float64), and multiply-adds (about a second).
CALL_ELEMENTS = 1 << 22
CALL_COST = 1 << 33
_BATCHED = ("gradients", "tangents", "products")


@final
@dataclass(eq=False)
class Evaluation(Generic[Result]):
    """A program at a point, with ``finish``, which converts its results.

    If ``batched``, the directions (``along``, or else the cotangents) and their results have a leading axis. ``size``
    is the number of elements in each leaf of an elementwise op. Evaluations with equal ``batch_key`` may share a call;
    one whose key is ``None`` runs alone. If ``is_padded``, the leaves may be flattened and padded, because each number
    depends only on the numbers at its own position.
    """

    point: Point
    kind: Kind
    finish: Callable[[KeyedArrays], Result]
    wrt: tuple[str, ...] = ()
    cotangents: Arrays | None = None
    along: Arrays = field(default_factory=dict[str, Array])
    order: int = 1
    batched: bool = False
    outputs: bool = False
    program: Program = field(init=False)
    leaves: list[Array] = field(init=False)
    size: int = field(init=False)
    is_padded: bool = field(init=False)
    batch_key: Hashable | None = field(init=False)

    def __post_init__(self) -> None:
        """Look up the program, which equal evaluations share, and collect its leaves."""
        spec = self.point.spec
        self.leaves = [*self.point.inputs.values(), *spec.numbers]
        if self.cotangents is not None:
            self.leaves += self.cotangents.values()
        self.leaves += self.along.values()
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
        self.size = self.leaves[0].size if self.leaves else 0
        self.is_padded = not self.batched and self.size > 0 and spec.is_padded
        is_shared = self.is_padded and self.size <= padding.SHARED
        self.batch_key = (self.program, spec.batch_key) if is_shared else None

    def run(self) -> Result:
        """Run the program alone, with a bounded number of directions per call.

        Raises ``Unprocessable`` if the op rejects its inputs, and ``OpFailed`` if it fails or returns an invalid output
        or gradient.
        """
        if self.batched:
            count, rows = len(next(iter(self._directions.values()))), rows_per_call(self.point)
            if count > rows:
                return self.finish(self._run_in_parts(count, rows))
        return run_together([self])[0]

    def simpler(self) -> Callable[[], object] | None:
        """Return a call with fewer pullbacks, which shows whether the op rejects its inputs or its gradient fails."""
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
    def _directions(self) -> Arrays:
        return self.along or self.cotangents or {}

    def _run_in_parts(self, count: int, rows: int) -> KeyedArrays:
        """Run ``rows`` of the ``count`` directions at a time, and join the results."""
        self.point.admit_work(count)
        where = "cotangents" if self.kind == "vjp" else "along"
        template = cast(Evaluation[KeyedArrays], self)
        parts: list[KeyedArrays] = []
        for start in range(0, count, rows):
            chunk = {name: direction[start : start + rows] for name, direction in self._directions.items()}
            parts.append(replace(template, finish=as_found, **{where: chunk}).run())
        whole = parts[0]
        for key in [key for key, value in whole.items() if key[0] in _BATCHED and value is not None]:
            whole[key] = np.concatenate([present(part[key]) for part in parts])
        return whole


@lru_cache(maxsize=1024)
def _program(*fields: Any) -> Program:
    """Return the program with these fields, cached, because each call uses it as a key several times."""
    return Program(*fields)


def run_together(evaluations: Sequence[Evaluation[Result]]) -> list[Result]:
    """Run a single evaluation, or several with one ``batch_key``, in one call; raise as ``Evaluation.run`` does."""
    first = evaluations[0]
    spec, leaves = first.point.spec, [evaluation.leaves for evaluation in evaluations]
    try:
        if first.is_padded:
            try:
                results = padding.run(first.program, spec.mode, leaves, spec.device)
            except padding.NotElementwise:
                if len(evaluations) > 1:
                    raise
                results = [_run_unpadded(first)]
        else:
            results = [_run_unpadded(first)]
        return [evaluation.finish(result) for evaluation, result in zip(evaluations, results, strict=True)]
    except (PullbackError, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - the op author's code may raise anything, or exit
        raise op_error(spec.op.name, error, first.simpler()) from error.with_traceback(None)


def _run_unpadded(evaluation: Evaluation[Result]) -> KeyedArrays:
    results = modes.run(evaluation.program, evaluation.point.spec.mode, evaluation.leaves, evaluation.point.spec.device)
    for key, value in results.items():
        if value is not None:
            _check_shape(evaluation.point, results, key, value, batched=evaluation.batched)
    return results


def as_found(results: KeyedArrays) -> KeyedArrays:
    """Return the results unchanged: the ``finish`` of evaluations that need no other."""
    return results


def present(value: Array | None) -> Array:
    """Return the array, which must not be ``None``."""
    assert value is not None
    return value


def rows_per_call(point: Point) -> int:
    """Return how many directions one call may have, which bounds its memory and time."""
    outputs = [shape or () for shape in point.output_shapes.values()]
    per_row = point.size + sum(map(math.prod, outputs))
    return max(1, min(CALL_ELEMENTS // (per_row + 1), CALL_COST // (point.cost + 1)))


def _check_shape(point: Point, results: KeyedArrays, key: Key, value: Array, *, batched: bool) -> None:
    """Raise ``OpFault`` for an output or a gradient of the wrong shape, which TensorFlow would broadcast silently."""
    what, name = key
    if what in ("outputs", "output shape"):
        function, expected, order = "forward", point.output_shapes[name], 0
    elif what in ("tangents", "slots"):
        function, expected, order = "the gradient of the gradient function", _output_shape(results, name), 2
    else:
        function, expected, order = "the gradient function", point.inputs[name].shape, 2 if what == "products" else 1
    if what in ("output shape", "gradient shape"):
        shape = tuple(value.tolist())
    else:
        shape = value.shape[int(batched and what != "outputs") :]
    if expected is not None and shape != expected:
        where = gradient_function(point.op, order) if order else located(point.op.function)
        raise OpFault(function, name, expected=f"shape {list(expected)}", got=f"{list(shape)}", where=where)


def _output_shape(results: KeyedArrays, name: str) -> tuple[int, ...]:
    """Return the shape of an output; the results have either the output or its shape as a tensor."""
    shape = results.get(("output shape", name))
    return present(results["outputs", name]).shape if shape is None else tuple(shape.tolist())
