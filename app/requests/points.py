"""A request at many points: its tensors have leading axes of points, and so has each array of its answer.

Each point is bound and evaluated as a request by itself would be, so the numbers have the same bits. Evaluations that
may share a call with other requests share it with each other: rows where rows are independent. The others run one after
the other.
"""

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

import numpy as np

from app.autodiff.absent import Absent
from app.autodiff.evaluation import Evaluation, compute
from app.autodiff.packing import NotPackable
from app.autodiff.point import Point
from app.errors import DeadlinePassed, Loc, Overloaded, PullbackError, wrong
from app.execution.calls import Portioned, Work
from app.runtime.cancellation import Checkpoint
from ops import Array

Leaf: TypeAlias = Array | Absent
# How long a portion lasts, but for the call that it is in: others have their turns in between.
PORTION_S = 0.05
# The most points of an answer that may have failed: their errors take about a kilobyte each.
MOST_FAILED = 10_000

Key: TypeAlias = tuple[str, str]
"""The field and the name of a tensor in a request."""
Bind: TypeAlias = Callable[[Mapping[str, dict[str, Array]], Sequence[Array]], tuple[Point, Work]]
"""Returns a point and its work, for its tensors by field and name, which are given in order too."""


@dataclass(eq=False)
class Rows:
    """The arrays of the results at all points, in the order of ``leaves_of``, and the result at one of them."""

    example: Any
    arrays: list[Leaf]

    @classmethod
    def like(cls, example: Any, leaves: Sequence[Leaf], count: int) -> "Rows":
        """Return rows for as many results like this one."""
        return cls(example, [x if isinstance(x, Absent) else np.empty((count, *x.shape), x.dtype) for x in leaves])

    def put(self, index: int, result: Any) -> None:
        """Set the row of a point; raises ``Unprocessable`` if it does not fit."""
        for whole, leaf in zip(self.arrays, leaves_of(result), strict=True):
            if isinstance(whole, Absent) or isinstance(leaf, Absent) or whole.shape[1:] != leaf.shape:
                if whole is leaf:
                    continue
                message = "the points have results of different shapes, which cannot be one array"
                raise wrong(("inputs",), message, expected=_shape(whole, 1), got=_shape(leaf))
            whole[index] = leaf

    def whole(self, shape: tuple[int, ...], failed: Mapping[int, PullbackError]) -> Any:
        """Return the result with the leading axes of points in each array."""
        for array in self.arrays if failed else ():
            if not isinstance(array, Absent):
                array[[*failed]] = _nothing(array.dtype)
        own = [x if isinstance(x, Absent) else x.reshape(*shape, *x.shape[1:]) for x in self.arrays]
        return _rebuilt(self.example, iter(own))


def leaves_of(result: Any) -> Iterator[Leaf]:
    """Yield the arrays of a result, and its reasons for missing ones."""
    if isinstance(result, dict):
        for value in cast("dict[str, Any]", result).values():
            yield from leaves_of(value)
    elif isinstance(result, list | tuple):
        for value in cast("Sequence[Any]", result):
            yield from leaves_of(value)
    else:
        yield result


def _rebuilt(example: Any, leaves: Iterator[Leaf]) -> Any:
    """Return a result like the example, with other leaves."""
    if isinstance(example, dict):
        return {name: _rebuilt(value, leaves) for name, value in cast("dict[str, Any]", example).items()}
    if isinstance(example, list | tuple):
        parts = [_rebuilt(value, leaves) for value in cast("Sequence[Any]", example)]
        return parts if isinstance(example, list) else tuple(parts)
    return next(leaves)


def _nothing(dtype: np.dtype[Any]) -> Any:
    """Return what stands in the rows of points that failed."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min
    return False if dtype.kind == "b" else np.nan


def _shape(leaf: Leaf, axes: int = 0) -> str:
    return str(leaf) if isinstance(leaf, Absent) else str(list(leaf.shape[axes:]))


def points_in(tensors: Mapping[Key, Array]) -> tuple[int]:
    """Return the number of points of tensors; raise ``Unprocessable`` unless all have as many."""
    for (name, slot), tensor in tensors.items():
        if not tensor.ndim:
            raise wrong((name, slot), "no axis of points", expected="an array with a leading axis of points", got="[]")
    lengths = {f"{name}.{slot}": len(tensor) for (name, slot), tensor in tensors.items()}
    if len({*lengths.values()}) > 1:
        got = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise wrong(("inputs",), "the number of points differs", expected="as many points in each array", got=got)
    return (next(iter(lengths.values())),)


@dataclass(frozen=True)
class Answers:
    """The result at all points, and the errors of those that failed, by point.

    The rows of these are NaN, in arrays of integers the least number, and in arrays of bools ``False``.
    """

    result: Any
    failed: Mapping[int, PullbackError]

    def document(self) -> list[dict[str, Any]]:
        """Return the points that failed, each with its error."""
        return [{"point": point, "error": _document(error)} for point, error in self.failed.items()]


@dataclass(eq=False)
class AtPoints(Portioned):
    """The work of a request at many points; ``shape`` is that of the leading axes of points of its tensors.

    If it is ``partial``, a point that fails is a part of the answer, unless all do.
    """

    tensors: Mapping[Key, Array]
    shape: tuple[int, ...]
    bind: Bind
    is_partial: bool
    finish: Callable[[Point, Any], Any] | None = None
    _rows: Rows | None = None
    _next: int = 0
    _bound: tuple[int, Point, Work] | None = None
    _failed: dict[int, PullbackError] = field(default_factory=dict[int, PullbackError])

    @property
    def count(self) -> int:
        """The number of points."""
        return math.prod(self.shape)

    def run_portion(self, checkpoint: Checkpoint) -> bool:
        """Run for a moment; return whether all points are done.

        Raises the error of a point that fails, which names it.
        """
        until = time.monotonic() + PORTION_S
        if not self.count:
            self._without_points(checkpoint)
        while self._next < self.count:
            if time.monotonic() > until:
                return False
            checkpoint()
            self._run_next(checkpoint)
        return True

    @property
    def result(self) -> Answers:
        """The answer, once all points are done; raises the error of the first point if all have failed."""
        if self._rows is None:
            raise self._failed[0]
        return Answers(self._rows.whole(self.shape, self._failed), self._failed)

    @property
    def progress(self) -> tuple[int, int]:
        """How many points are done, and how many there are."""
        return self._next, self.count

    def _run_next(self, checkpoint: Checkpoint) -> None:
        """Run the next point, with those after it that may share its call."""
        first = self._next
        try:
            point, work = self._at(first)
            if not isinstance(work, Evaluation):
                self._keep(first, point, work(checkpoint))
                self._next += 1
                return
        except PullbackError as error:
            self._fail(first, error)
            self._next += 1
            return
        group = [work, *self._like(work)]
        try:
            outcomes = compute(group)
        except NotPackable:  # the trial of their rows has found now that they share no call
            outcomes = None
        except PullbackError as error:
            if len(group) == 1:
                self._fail(first, error)
                self._next += 1
                return
            outcomes = None
        for i, evaluation in enumerate(group, first):
            try:
                (outcome,) = compute([evaluation]) if outcomes is None else [outcomes[i - first]]
                self._keep(i, evaluation.point, evaluation.finish(outcome))
            except PullbackError as error:
                self._fail(i, error)
            self._next = i + 1

    def _like(self, first: Evaluation[Any]) -> Iterator[Evaluation[Any]]:
        """Yield the evaluations of the points after the next one, as long as they fit into its call."""
        key, (packing, units), total = first.batch_key, first.packed, first.packed[1]
        for i in range(self._next + 1, self.count if key is not None else 0):
            total += units
            if total > packing.most:
                return
            try:
                _, work = self._at(i)
            except PullbackError:
                return  # it is reported in its turn
            if not isinstance(work, Evaluation) or work.batch_key != key or work.packed[1] != units:
                return
            yield work

    def _at(self, index: int) -> tuple[Point, Work]:
        """Return a point and its work; raises ``Unprocessable``."""
        if self._bound is None or self._bound[0] != index:
            at = self._index(index)
            self._bound = index, *self._bind([tensor[(*at, ...)] for tensor in self.tensors.values()])
        return self._bound[1:]

    def _index(self, index: int) -> tuple[int, ...]:
        return tuple(map(int, np.unravel_index(index, self.shape)))

    def _bind(self, tensors: Sequence[Array]) -> tuple[Point, Work]:
        fields = dict[str, dict[str, Array]]()
        for (name, slot), tensor in zip(self.tensors, tensors, strict=True):
            fields.setdefault(name, {})[slot] = tensor
        return self.bind(fields, tensors)

    def _keep(self, index: int, point: Point, result: Any) -> None:
        """Keep the result at a point; raises ``Unprocessable`` for one of another shape than at other points."""
        if self.finish is not None:
            result = self.finish(point, result)
        if self._rows is None:
            leaves, sent = [*leaves_of(result)], sum(map(_stored, self.tensors.values()))
            if (elements := self.count * sum(leaf.size for leaf in leaves if not isinstance(leaf, Absent))) > sent:
                point.admit(elements, "results at all points")
            self._rows = Rows.like(result, leaves, self.count)
        if self.count:
            self._rows.put(index, result)

    def _fail(self, index: int, error: PullbackError) -> None:
        """Keep the error of a point, or raise it."""
        named = _named(error, self._index(index), {name for name, _ in self.tensors})
        if not self.is_partial or isinstance(error, (DeadlinePassed, Overloaded)):
            raise named from None
        self._failed[index] = named
        if len(self._failed) > MOST_FAILED:
            expected, got = (
                f"at most {MOST_FAILED} points that fail",
                f"more, the first of them {next(iter(self._failed))}",
            )
            raise wrong(("inputs",), "too many points fail", expected=expected, got=got)

    def _without_points(self, checkpoint: Checkpoint) -> None:
        """Run a point of zeros, which shows the shapes of the results."""
        try:
            axes = len(self.shape)
            point, work = self._bind([np.zeros(x.shape[axes:], x.dtype) for x in self.tensors.values()])
            found = work.finish(compute([work])[0]) if isinstance(work, Evaluation) else work(checkpoint)
        except PullbackError as error:
            message = f"no points, and a point of zeros does not show the shapes of the results: {error.sentence()}"
            raise wrong(("inputs",), message, expected="at least one point", got="0") from None
        self._keep(0, point, found)


def _stored(tensor: Array) -> int:
    """Return how many numbers of a tensor are in memory: points may share them."""
    return math.prod([size for size, stride in zip(tensor.shape, tensor.strides, strict=True) if stride])


def _named(error: PullbackError, index: tuple[int, ...], fields: set[str]) -> PullbackError:
    """Return the error at a point, with the point in its detail and in the locations of its tensors."""

    def located(loc: Loc) -> Loc:
        return (*loc[:2], *index, *loc[2:]) if len(loc) > 1 and loc[0] in fields else loc

    named = copy.copy(error)
    named.detail = f"point {', '.join(map(str, index))}: {error.detail}"
    named.entries = tuple([replace(entry, loc=located(entry.loc)) for entry in error.entries])
    return named


def _document(error: PullbackError) -> dict[str, Any]:
    """Return the problem of a point: of its errors, only the first one."""
    document = error.document("")
    return {**document, "errors": document["errors"][:1]} if document.pop("instance", None) is not None else document
