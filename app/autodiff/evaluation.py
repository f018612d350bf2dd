"""One program at one point: run alone or in one call with similar ones, with its results checked."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, Generic, TypeVar, cast, final

import numpy as np

from app.autodiff import directions
from app.autodiff.binding import moved
from app.autodiff.builder import gradient_function
from app.autodiff.compared import Compared, need_no_state, reasons
from app.autodiff.derived import DerivedOp, origin, with_names
from app.autodiff.packing import NotPackable, Packing, Shape, Whole, whole
from app.autodiff.padded_numbers import PaddedNumbers, padded_numbers
from app.autodiff.padded_rows import PaddedRows, axes_of_rows, padded_rows
from app.autodiff.point import PADDED_MODES, Arrays, Point
from app.autodiff.programs import Program, ShapeOf, program_of
from app.autodiff.row_trial import ENDED, RowTrial
from app.autodiff.symbolic_shapes import resolved_shape
from app.autodiff.transforms import Transform
from app.errors import Postponed, PullbackError, wrong
from app.runtime import cancellation
from app.runtime.calculus import NotVectorized
from app.runtime.messages import node_of
from app.runtime.modes import Key, KeyedArrays, present
from app.runtime.op_errors import converted
from app.runtime.refused import REFUSED, require_allowed
from ops import Array, OpFault, located

Result = TypeVar("Result")

_SHAPE = attrgetter("shape")


@final
@dataclass(eq=False)
class Evaluation(Generic[Result]):
    """Transforms at a point, with ``finish``, which converts their results.

    ``seeds`` has those of each transform by name, in the order of ``Transform.seeds``; those of the last transform have
    a leading axis if ``batched``, as its results do. ``kept`` are the levels that are returned besides the last one.
    """

    point: Point
    transforms: tuple[Transform, ...]
    finish: Callable[[KeyedArrays], Result]
    seeds: tuple[Arrays, ...] = ()
    kept: tuple[int, ...] = ()
    batched: bool = False
    program: Program = field(init=False)
    leaves: list[Array] = field(init=False)

    def __post_init__(self) -> None:
        """Look up the program, which equal evaluations share, and collect its leaves."""
        spec = self.point.spec
        self.leaves = [*self.point.inputs.values(), *spec.numbers]
        for seeds in self.seeds:
            self.leaves += seeds.values()
        self.program = program_of((spec.op, spec.dtype, spec.static, self.transforms, self.kept, self.batched, 0))

    @cached_property
    def _copies(self) -> "Evaluation[KeyedArrays] | None":
        """The evaluation of a few directions, each at its own copy of the point, if they may be rows of a call."""
        if not self.batched or self.point.spec.batching not in ("leading_axis", "leading_axes"):
            return None
        rows = dict(zip(self.program.leaf_names, self.program.row_leaves, strict=True))
        seeds = self.program.signatures[1].seeds
        have_rows = [{name: rows[leaf] for name, leaf in each.items()} for each in seeds]
        found = directions.copies(self.point, self.seeds, have_rows)
        return None if found is None else Evaluation(found[0], self.transforms, as_found, found[1], self.kept)

    @property
    def of_rows(self) -> "Evaluation[Any]":
        """The evaluation whose rows a call has."""
        return self._copies or self

    @cached_property
    def packed(self) -> tuple[Packing, int]:
        """How the leaves become those of a call, and how many of its units they are."""
        spec, one = self.point.spec, self.of_rows
        if spec.mode in PADDED_MODES and spec.errors is None and not one.batched:
            if spec.batching == "elementwise" and one.leaves[0].size:
                return padded_numbers(one.program, spec.mode, spec.device), one.leaves[0].size
            if spec.batching in ("leading_axis", "leading_axes") and one.program.has_row_results:
                packed = padded_rows(one.program, one.point, one.leaves, one.row_results)
                if packed is not None:
                    return packed
        return self.whole, 1

    @property
    def whole(self) -> Whole:
        """The packing of the evaluation where it shares its call with no other."""
        spec, shapes = self.point.spec, tuple(map(_SHAPE, self.leaves))
        if spec.errors is not None:
            return Compared(self.program, "graph", spec.device, shapes, spec.errors)
        return whole(self.program, spec.mode, spec.device, shapes)

    @cached_property
    def batch_key(self) -> Hashable | None:
        """A key that is equal for evaluations that may share a call; ``None`` for one that runs alone."""
        packing, size = self.packed
        if isinstance(packing, Whole) or size > packing.most:
            return None
        # Bytes, because 0.0 == -0.0 although the two give different results.
        leaves, parameters = zip(self.of_rows.leaves, packing.units, strict=True), self.point.spec.parameters
        key = [leaf.tobytes() for leaf, unit in leaves if unit is None and id(leaf) not in parameters.identities]
        return packing, parameters.digest if parameters.arrays else "", *key

    def at(self, tensors: Sequence[Array], positions: Sequence[Mapping[str, int]]) -> "Evaluation[Result]":
        """Return the evaluation at other tensors of the same shapes, with all that is known of this one.

        ``positions`` has that of each input among the tensors, by name, then of the seeds of each transform. The
        evaluation must not be ``batched``, and what must be equal in a shared call must be number attributes, or
        parameters.
        """
        point, get, other = self.point, tensors.__getitem__, cast("Evaluation[Result]", object.__new__(Evaluation))
        inputs, *seeds = [dict(zip(names, map(get, names.values()), strict=True)) for names in positions]
        other.__dict__.update(self.__dict__)
        inputs.update(point.spec.held)
        other.point = Point(point.spec, inputs, point.dims, point.size, point.output_shapes)
        other.seeds, other.leaves = tuple(seeds), [*inputs.values(), *point.spec.numbers]
        for seed in seeds:
            other.leaves += seed.values()
        return other

    def then(self, finish: Callable[[Result], Any]) -> "Evaluation[Any]":
        """Let the result pass through ``finish``, and return the evaluation."""
        changed, before = cast("Evaluation[Any]", self), self.finish
        changed.finish = lambda results: finish(before(results))
        return changed

    def row_results(self) -> dict[Key, Shape] | None:
        """Return the shape of one row of each result; ``None`` if only a run determines it."""
        found, axes, shared = dict[Key, Shape](), axes_of_rows(self.point), origin(self.point.op)[0].shared
        for key, result in self.program.expected.items():
            if result.shape.is_leaf and result.shape.name in shared:
                continue
            shape = self.known_shape(result.shape)
            if shape is None:
                return None
            found[key] = shape[axes:]
        return found

    def known_shape(self, of: ShapeOf) -> Shape | None:
        """Return the shape of a leaf or an output, ``None`` if it depends on values."""
        if of.is_leaf:
            return self.leaves[self.program.leaf_names.index(of.name)].shape
        if isinstance(op := self.point.op, DerivedOp):
            (slot,) = (slot for slot in op.base.outputs if slot.name == of.name)
            return resolved_shape(slot.shape, self.point.dims)
        return self.point.output_shapes[of.name]

    def run(self) -> Result:
        """Run the program alone, with a bounded number of directions per call, and rows as they are.

        Raises ``Unprocessable`` if the op rejects its inputs, and ``OpFailed`` if it fails or returns an invalid output
        or gradient.
        """
        packing, _ = self.packed
        return self.finished(compute([self], packing if isinstance(packing, PaddedNumbers) else self.whole)[0])

    def finished(self, results: KeyedArrays) -> Result:
        """Return the result; with errors inside the op, reasons take the place of what has no estimate."""
        spec, found = self.point.spec, dict[Key, Any](results)
        if spec.errors is not None:
            found |= reasons(self.program, self.leaves, spec.device)
        return self.finish(found)

    def run_unpadded(self) -> Result:
        """Run the program alone on the leaves as they are, whatever their shapes; raises as ``run``."""
        return self.finish(compute([self], self.whole)[0])

    def simpler(self) -> Callable[[], object] | None:
        """Return a call with fewer pullbacks, which shows whether the op rejects its inputs or its gradient fails."""
        if self.transforms:
            *before, last = self.transforms
            if last.rule == "jvp":
                before.append(Transform("vjp", last.wrt, last.of, ones=True))
            return Evaluation(self.point, tuple(before), as_found, self.seeds[:-1]).run
        return partial(_check_directions, self.point, op) if isinstance(op := self.point.op, DerivedOp) else None


def compute(evaluations: Sequence[Evaluation[Any]], packing: Packing | None = None) -> list[KeyedArrays]:
    """Run a single evaluation, or several in one call; raise as ``Evaluation.run`` does.

    Several have one ``batch_key``, or are whole ones of one program at the same point, whose residuals are in use.

    Raises ``Overloaded`` too, for an op that has crashed its process. Return their results for ``Evaluation.finish``.
    With their own packing, which is the default, rows are padded, so that the bits are those of a shared call. A single
    evaluation that does not fit the packing runs as it is.
    """
    first = evaluations[0]
    _need_allowed(first)
    packing = packing or first.packed[0]
    if first.batched:
        count, rows = len(next(iter(first.seeds[-1].values()))), directions.per_call(first.point)
        if not count or count > rows:
            return [_in_parts(first, count, rows)]
    try:
        if not isinstance(packing, Whole):
            if isinstance(packing, PaddedRows) and packing.why_not is None:
                packing.try_rows(RowTrial(first.of_rows.point, first.of_rows.leaves))
            members = [each.of_rows.leaves if each.batched else each.leaves for each in evaluations]
            try:
                results = packing.run(members)
                for i, each in enumerate(evaluations):
                    if each.batched:
                        results[i] = directions.of_point(each.point, len(each.transforms), results[i])
                return results
            except NotPackable:
                if len(evaluations) > 1:
                    raise
                packing = first.whole
        results = packing.run([each.leaves for each in evaluations])
        for each, found in zip(evaluations, results, strict=True):
            _check_shapes(each, found)
        packing.note(results[0])
    except (PullbackError, Postponed, NotPackable):
        raise
    except NotVectorized:
        return list(map(_one_by_one, evaluations))
    except BaseException as error:  # noqa: BLE001 - the op author's code may raise anything, or exit
        # A failed trace is kept, and the traceback would keep the tensors of the request alive.
        node = _failing_node(first, error)
        raise converted(first.point.op.name, error, first.simpler(), node) from error.with_traceback(None)
    return results


def _need_allowed(evaluation: Evaluation[Any]) -> None:
    spec = evaluation.point.spec
    if REFUSED:
        require_allowed(origin(spec.op)[0])
    if spec.errors is not None:
        need_no_state(evaluation.program, evaluation.leaves, spec.device)


def _in_parts(evaluation: Evaluation[Any], count: int, rows: int) -> KeyedArrays:
    """Run ``rows`` of the ``count`` directions at a time, and join the results.

    Without directions, run one of zeros and drop its results: a loop without turns has results of unknown shapes.
    """
    evaluation.point.admit_work(count)
    *before, last = evaluation.seeds
    if not count:
        last = {name: np.zeros((1, *empty.shape[1:]), empty.dtype) for name, empty in last.items()}
    parts = list[KeyedArrays]()
    for start in range(0, max(count, 1), rows):
        chunk = {name: direction[start : start + rows] for name, direction in last.items()}
        parts += compute([replace(evaluation, seeds=(*before, chunk))])
    whole = parts[0]
    for key in [key for key, value in whole.items() if key[0] == len(evaluation.transforms) and value is not None]:
        whole[key] = np.concatenate([present(part[key]) for part in parts])[:count]
    return whole


def _one_by_one(evaluation: Evaluation[Any]) -> KeyedArrays:
    """Run each direction alone, and stack the results."""
    *before, last = evaluation.seeds
    parts = list[KeyedArrays]()
    for i in range(len(next(iter(last.values())))):
        cancellation.check()
        seeds = (*before, {name: direction[i] for name, direction in last.items()})
        parts += compute([replace(evaluation, seeds=seeds, batched=False)])
    whole, level = parts[0], len(evaluation.transforms)
    return {
        key: np.stack([present(part[key]) for part in parts]) if key[0] == level and x is not None else x
        for key, x in whole.items()
    }


def as_found(results: KeyedArrays) -> KeyedArrays:
    """Return the results unchanged: the ``finish`` of evaluations that need no other."""
    return results


def _failing_node(evaluation: Evaluation[Any], error: BaseException) -> str:
    """Return the node of a graph of ops that has raised an error; "" if it is unknown, or no node is to blame."""
    point, known = evaluation.point, node_of(error)
    if known or not origin(point.op)[0].parts or isinstance(error, (OpFault, MemoryError, *ENDED)):
        return known
    # XLA fails in its own way; in the other modes, the same kernels fail.
    spec = replace(point.spec, op=with_names(point.op), mode="xla" if point.spec.mode == "xla" else "graph")
    named = replace(evaluation, point=replace(point, spec=spec))
    try:
        named.whole.run([named.leaves])
    except Postponed:
        raise
    except BaseException as other:  # noqa: BLE001 - the op author's code may raise anything, or exit
        return node_of(other)
    return ""


def _check_directions(point: Point, op: DerivedOp) -> None:
    """Run what a derived op differentiates; raise ``Unprocessable`` for directions of another shape than its slots.

    Shapes that do not depend on values are checked before any run.
    """
    inputs = {slot.name: point.inputs[slot.name] for slot in op.of.inputs}
    results = Evaluation(moved(replace(point, spec=replace(point.spec, op=op.of)), inputs), (), as_found).run()
    for leaf, name in op.given.items() if op.transforms[-1].rule == "vjp" else ():
        y = results[0, name]
        if y is not None and y.shape != (got := point.inputs[leaf].shape):
            raise wrong(("inputs", leaf), "shape mismatch", expected=str(list(y.shape)), got=str(list(got)))


def _check_shapes(evaluation: Evaluation[Any], results: KeyedArrays) -> None:
    """Raise ``OpFault`` for an output or a gradient of the wrong shape, which TensorFlow would broadcast silently."""
    expectations, last = evaluation.program.expected, len(evaluation.transforms)
    for key, value in results.items():
        if value is None:
            continue
        (level, name), result = key, expectations[key]
        if isinstance(level, str):
            shape = tuple(value.tolist())
        else:
            shape = value.shape[int(evaluation.batched and level == last) :]
        expected = _shape(evaluation, results, result.shape)
        if shape != expected:
            if isinstance(derived := evaluation.point.op, DerivedOp):
                _check_directions(evaluation.point, derived)
            op = origin(evaluation.point.op)[0]
            where = gradient_function(op, result.order) if result.order else located(op.function)
            raise OpFault(result.function, name, expected=f"shape {list(expected)}", got=f"{list(shape)}", where=where)


def _shape(evaluation: Evaluation[Any], results: KeyedArrays, of: ShapeOf) -> Shape:
    """Return the shape of a leaf or an output; if it depends on values, that of the run."""
    expected = evaluation.known_shape(of)
    if expected is not None:
        return expected
    shape = results.get(("0 shape", of.name))
    return present(results[0, of.name]).shape if shape is None else tuple(shape.tolist())
