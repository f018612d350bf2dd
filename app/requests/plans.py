"""Plans: validated requests without their tensors, kept for later requests that differ only in their tensors.

An optimiser sends the same request a thousand times with different numbers. To validate everything else takes several
times as long as to read the numbers.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, Literal, TypeAlias, cast

import orjson

from app.autodiff.binding import (
    Decode,
    bind_directions,
    bind_dtype,
    bind_inputs,
    bind_names,
    bind_spec,
    bind_wrt,
    check_values,
    decode_inputs,
)
from app.autodiff.derived import variant_of
from app.autodiff.evaluation import Evaluation
from app.autodiff.point import Point, Spec
from app.errors import Loc, Unprocessable
from app.execution.calls import Call, Work, run
from app.execution.engine import Engine
from app.requests import answers, models
from app.requests.answering import Reply
from app.requests.complex_numbers import shown
from app.requests.digits import Directions, Tree, with_uncertainty
from app.requests.fields import check_exclusions, validated
from app.requests.points import AtPoints, points_in
from app.requests.shaped import Shaped, shaped_by, write_as_before
from app.runtime.owned_cache import OwnedCache
from app.telemetry.counters import Counters
from app.tensors.casting import Source
from app.tensors.json import FIELDS, Shape, decode, dtypes_of
from ops import Array, Op

# A request with another number among its attributes has another plan. A plan takes a few kilobytes at most: its key is
# bounded, and has no unknown names, of which there could be any number of any length.
KEPT, MAX_KEY = 1024, 4096
# For how many shapes of its tensors a plan keeps what follows from them; the least recently used go first.
SHAPES = 8
# The most multiply-adds of short work, which takes milliseconds.
SHORT_COST = 1 << 24
# The most points of short work.
FEW = 16

_SHAPE = attrgetter("shape")

Fields: TypeAlias = Mapping[str, Any]
"""The fields of a request, its tensors not decoded."""


@dataclass(frozen=True)
class Operation:
    """One operation: its models, the work for a plan at a point, and the tree of the result.

    ``directions`` maps the fields of its directions to the side of the op that they belong to.
    """

    name: str
    summary: str
    request: type[models.OperationRequest]
    answer: type[answers.OperationAnswer]
    directions: Mapping[str, Literal["inputs", "outputs"]]
    work: Callable[["Plan", Point, Directions], Work]
    tree: Callable[["Plan", Any], dict[str, Tree]]
    is_long: bool = False


@dataclass(frozen=True)
class Plan:
    """A request to an op without its tensors: its model, and the names that it selects, bound to a ``spec``.

    ``owner`` is the owner of the op. ``is_sparse``: it asks for a sparse matrix.
    """

    operation: Operation
    request: Any
    wrt: tuple[str, ...]
    of: tuple[str, ...]
    spec: Spec
    owner: str
    is_long: bool
    is_sparse: bool = False
    _by_shapes: OrderedDict[tuple[Shape, ...], Shaped] = field(default_factory=OrderedDict[tuple[Shape, ...], Shaped])

    @cached_property
    def dtypes(self) -> Mapping[str, Mapping[str, str]]:
        """The dtypes of the tensors of a request by their names, for each field."""
        sides = {"inputs": "inputs", **self.operation.directions}
        return {
            name: (self.spec.inputs if side == "inputs" else self.spec.outputs).shown for name, side in sides.items()
        }

    def call(
        self,
        fields: Fields,
        write: Callable[[Any], Reply],
        counters: Counters,
        sources: Sequence[Source] = (),
        *,
        form: str = "",
        finish: Callable[[Point, Any], Any] | None = None,
    ) -> Call:
        """Return the call for the tensors of a request; raises ``Unprocessable`` for invalid tensors.

        The result of the work passes through ``finish``, if any, and then through ``write``. If ``write`` depends only
        on the plan and on ``form``, its responses are written by the layout of an earlier one, if possible.
        """
        if self.request.points:
            return self.call_at_points(fields, write, counters)
        by_field: dict[str, dict[str, Array]] = {}
        decoded: Fields = by_field
        tensors: list[Array] | None = []
        try:
            for name, dtypes in self.dtypes.items():
                if (values := fields.get(name)) is not None:
                    arrays = by_field[name] = {}
                    for slot, value in values.items():
                        arrays[slot] = tensor = decode(value, dtypes[slot], (name, slot))
                        tensors.append(tensor)
        except (Unprocessable, KeyError):
            decoded, tensors = fields, None  # to bind them reports all errors
        point, work, is_long, shaped = self._at(decoded, tensors)
        if finish is not None:
            work = _then(work, partial(finish, point))
        if isinstance(work, Evaluation):
            written = shaped.written if shaped is not None and form else {}
            write = partial(write_as_before, work.finish, write, written, form)
        return Call(self.owner, self.spec, work, is_long, write, counters, sources)

    def call_at_points(
        self,
        fields: Fields,
        write: Callable[[Any], Reply],
        counters: Counters,
        *,
        finish: Callable[[Point, Any], Any] | None = None,
        shape: tuple[int, ...] | None = None,
    ) -> Call:
        """Return the call for tensors with a leading axis of points; ``write`` gets ``points.Answers``.

        With a ``shape``, they have leading axes of these lengths. The result at each point passes through ``finish``,
        if any. Raises ``Unprocessable`` for invalid tensors.
        """
        inputs = decode_inputs(self.spec.op, fields["inputs"], self.spec.inputs.shown, decode)
        if not inputs:
            bind_inputs(self.spec, inputs, decode)  # it reports what is missing
        tensors = {("inputs", slot): tensor for slot, tensor in inputs.items()}
        for name, values in self._directions(fields).items():
            tensors |= {(name, slot): tensor for slot, tensor in (values or {}).items()}

        def bind(decoded: Fields, tensors: Sequence[Array]) -> tuple[Point, Work]:
            return self._at(decoded, tensors)[:2]

        work = AtPoints(tensors, shape or points_in(tensors), bind, self.request.partial, finish)
        is_long = self.is_long or work.count > FEW or sum(tensor.size for tensor in tensors.values()) > SHORT_COST
        return Call(self.owner, self.spec, work, is_long, write, counters)

    def _at(self, decoded: Fields, tensors: Sequence[Array] | None) -> tuple[Point, Work, bool, Shaped | None]:
        """Return the point of tensors, its work, whether that is long, and what is known of their shapes.

        ``decoded`` has the tensors by field and name; ``None`` in place of the tensors if they are not valid. Raises
        ``Unprocessable``.
        """
        shapes = None if tensors is None else tuple(map(_SHAPE, tensors))
        shaped = None if shapes is None else self._by_shapes.pop(shapes, None)
        if tensors is None or shaped is None or shaped.evaluation.packed[0].why_not:
            point, work = self.work(decoded, decode if tensors is None else _as_decoded)
            cost = point.size if self.spec.op.cost is None else point.cost
            # A few directions at once are rows of a call.
            may_share = isinstance(work, Evaluation) and work.batch_key is not None
            is_long = cost > SHORT_COST or (self.is_long and not may_share)
            shaped = shaped_by(work, tensors, is_long) if isinstance(work, Evaluation) and tensors is not None else None
        else:
            work, is_long = shaped.evaluation.at(tensors, shaped.positions), shaped.is_long
            point = work.point
            if self.spec.op.validate is not None:
                check_values(self.spec, point.inputs)
        if shapes is not None and shaped is not None:
            self._by_shapes[shapes] = shaped
            if len(self._by_shapes) > SHAPES:
                self._by_shapes.popitem(last=False)
        return point, work, is_long, shaped

    def work(self, fields: Fields, decode: Decode = decode) -> tuple[Point, Work]:
        """Return the point of a request, and its work there; raises ``Unprocessable`` for invalid tensors.

        If only a run determines the shapes of the outputs, the directions are checked as part of the work.
        """
        operation, (point, directions) = self.operation, self.bind(fields, decode)
        if self.request.digits:
            sides = operation.directions
            steps = with_uncertainty(
                partial(operation.work, self), partial(operation.tree, self), point, directions, sides
            )
            if self.spec.op.is_complex:
                finish = self._shown_at(point)
                return point, _then(steps, lambda found: (finish(found[0]), found[1]))
            return point, steps
        work: Work = lambda checkpoint: run(operation.work(self, point, directions), checkpoint)  # noqa: E731
        if None not in point.output_shapes.values():
            work = operation.work(self, point, directions)
        return point, _then(work, self._shown_at(point)) if self.spec.op.is_complex else work

    def _shown_at(self, point: Point) -> Callable[[Any], Any]:
        """Return what puts complex numbers in place of pairs in a result at a point; it does not keep the point."""
        return partial(shown, self.operation.name, self.spec, {name: x.ndim for name, x in point.inputs.items()})

    def bind(self, fields: Fields, decode: Decode = decode) -> tuple[Point, Directions]:
        """Return the point of a request, and its directions; raises ``Unprocessable`` for invalid tensors."""
        return bind_inputs(self.spec, fields["inputs"], decode), self._directions(fields, decode)

    def _directions(self, fields: Fields, decode: Decode = decode) -> Directions:
        """Return the directions of a request; raises ``Unprocessable``."""
        found = dict[str, dict[str, Array] | None]()
        for name, side in self.operation.directions.items():
            values, slots = fields.get(name), self.spec.inputs if side == "inputs" else self.spec.outputs
            found[name] = None if values is None else bind_directions(values, slots, decode, name)
        return found


def _as_decoded(value: Any, dtype: str, loc: Loc) -> Array:
    """Return an array that has been decoded."""
    del dtype, loc
    return value


def _then(work: Work, finish: Callable[[Any], Any]) -> Work:
    """Return work whose result passes through ``finish``."""
    return work.then(finish) if isinstance(work, Evaluation) else lambda checkpoint: finish(work(checkpoint))


class Plans:
    """The plans of a service, by request."""

    def __init__(self, engine: Engine) -> None:
        """Start with none."""
        self._engine, self._kept = engine, OwnedCache[tuple[str, bytes], Plan](KEPT)
        engine.after_reading.append(self._drop_gone)

    def __len__(self) -> int:
        """Return the number of plans that are kept."""
        return len(self._kept)

    def _drop_gone(self) -> None:
        """Drop the plans with put parameters that this process has no more."""
        self._kept.drop(lambda plan: not self._engine.sets.has(plan.spec.op, plan.spec.parameters))

    def plan(self, operation: Operation, op: Op, fields: Fields) -> Plan:
        """Return the plan for a request; raises ``Unprocessable`` for errors outside its tensors."""
        bare, second = dict(fields), op.second_names
        for name in FIELDS:
            if isinstance(bare.get(name), dict):
                values = cast("dict[str, Any]", bare[name])
                bare[name] = dict.fromkeys(values)
                if second:
                    bare[name] |= dtypes_of({slot: values[slot] for slot in second & values.keys()})
        try:
            # As JSON, because the orders 1, 1.0 and true are equal in Python and must have different keys.
            key = operation.name, orjson.dumps(bare)
        except TypeError:  # nested too deeply for orjson, and so invalid for every op
            return self._make(operation, op, bare)
        plan = self._kept.get(op, key)
        if plan is None or not self._engine.sets.is_kept(op, plan.spec.parameters):
            plan = self._make(operation, op, bare)
            if len(key[1]) <= MAX_KEY and _has_known_names(plan, bare):
                self._kept.keep(op, key, plan)
        return plan

    def _make(self, operation: Operation, op: Op, bare: Fields) -> Plan:
        request, engine = validated(bare, operation.request), self._engine
        check_exclusions(request)
        op = variant_of(op, request.inputs)
        batched = isinstance(request, models.BatchedRequest) and request.batched
        is_sparse = getattr(request, "sparse", None) is not None
        # With many directions, XLA would compile once for each number of directions, and for each shape.
        has_many = batched or is_sparse or isinstance(request, models.SparsityRequest)
        mode = request.mode or ("graph" if has_many else engine.default_mode(op, request.dtype, request.device))
        run = {"device": engine.device(request.device), "max_elements": engine.max_elements}
        parameters = engine.parameters(op, request.parameters)
        dtype = bind_dtype(op, request.dtype)
        spec = bind_spec(op, request.attrs, dtype, mode=mode, parameters=parameters, **run)
        wrt = bind_wrt(op, getattr(request, "wrt", None))
        of = bind_names(getattr(request, "of", None), op.general.outputs, "of")
        whole = operation.is_long and not getattr(request, "diagonal", False)
        return Plan(operation, request, wrt, of, spec, op.owner, whole or batched, is_sparse)


def _has_known_names(plan: Plan, fields: Fields) -> bool:
    """Return whether every tensor of a request has the name of a slot; binding reports the others."""
    return all(set(fields.get(name) or ()) <= dtypes.keys() for name, dtypes in plan.dtypes.items())
