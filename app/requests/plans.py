"""Plans: validated requests without their tensors, kept for later requests that differ only in their tensors.

An optimiser sends the same request a thousand times with different numbers. To validate everything else takes several
times as long as to read the numbers.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar, cast

import orjson
from pydantic import BaseModel, ValidationError

from app.autodiff.binding import bind_directions, bind_inputs, bind_names, bind_spec
from app.autodiff.evaluation import Evaluation, compute
from app.autodiff.point import Point, Spec
from app.errors import unprocessable, wrong
from app.execution.calls import Call, Steps, Work
from app.execution.engine import Engine
from app.requests import models
from app.runtime.cancellation import Checkpoint
from app.telemetry.counters import Counters
from app.tensors.casting import Document, Source, describe
from app.tensors.json import FIELDS, decode
from app.tensors.strict_json import Body, parse
from app.tensors.validation import entries
from ops import Array, Op

# A request with another number among its attributes has another plan. A plan takes some kilobytes, and no more than
# that: its key is bounded, and without unknown names, which could be of any length and number.
KEPT, MAX_KEY = 1024, 4096
# The most multiply-adds of short work, which takes milliseconds.
SHORT_COST = 1 << 24

Model = TypeVar("Model", bound=BaseModel)
Fields: TypeAlias = Mapping[str, Any]
"""The fields of a request, its tensors not decoded."""
Tree: TypeAlias = Any
"""A response before it is written: objects and lists of arrays and ``Absent``."""
Directions: TypeAlias = Mapping[str, dict[str, Array] | None]
"""The cotangents, tangents or vectors of a request, by its field; ``None`` for an omitted field."""


@dataclass(frozen=True)
class Operation:
    """One operation: its models, the work for a plan at a point, and the tree of the result.

    ``directions`` maps the fields of its directions to the side of the op that they belong to.
    """

    name: str
    summary: str
    request: type[models.OperationRequest]
    answer: type[models.OperationAnswer]
    directions: Mapping[str, Literal["inputs", "outputs"]]
    work: Callable[["Plan", Point, Directions], Work]
    tree: Callable[["Plan", Any], dict[str, Tree]]
    is_long: bool = False


@dataclass(frozen=True)
class Plan:
    """A request to an op without its tensors: its model, and the names that it selects, bound to a ``spec``.

    ``owner`` is the owner of the op.
    """

    operation: Operation
    request: Any
    wrt: tuple[str, ...]
    of: tuple[str, ...]
    spec: Spec
    owner: str
    is_long: bool

    def call(
        self,
        fields: Fields,
        write: Callable[[Any], Any],
        counters: Counters,
        sources: Sequence[Source] = (),
        *,
        finish: Callable[[Point, Any], Any] | None = None,
    ) -> Call:
        """Return the call for the tensors of a request; raises ``Unprocessable`` for invalid tensors.

        The result of the work passes through ``finish``, if any, and then through ``write``.
        """
        point, work = self.work(fields)
        cost = point.size if self.spec.op.cost is None else point.cost
        # A few directions at once are rows of a call.
        may_share = isinstance(work, Evaluation) and work.batch_key is not None
        is_long = cost > SHORT_COST or (self.is_long and not may_share)
        if finish is not None:
            finish_here = partial(finish, point)
            work = work.then(finish_here) if isinstance(work, Evaluation) else _followed(work, finish_here)
        return Call(self.owner, work, is_long, write, counters, sources)

    def work(self, fields: Fields) -> tuple[Point, Work]:
        """Return the point of a request, and its work there; raises ``Unprocessable`` for invalid tensors.

        If only a run determines the shapes of the outputs, the directions are checked as part of the work.
        """
        operation, spec, directions = self.operation, self.spec, dict[str, dict[str, Array] | None]()
        point = bind_inputs(spec, fields["inputs"], decode)
        for field, side in operation.directions.items():
            values, slots = fields.get(field), spec.inputs if side == "inputs" else spec.outputs
            directions[field] = None if values is None else bind_directions(values, slots, decode, field)
        if None in point.output_shapes.values():
            return point, lambda checkpoint: run(operation.work(self, point, directions), checkpoint)
        return point, operation.work(self, point, directions)


def run(work: Work, checkpoint: Checkpoint) -> Any:
    """Return the result of the work of an operation, run as steps."""
    return work.finish(compute([work])[0]) if isinstance(work, Evaluation) else work(checkpoint)


def _followed(steps: Steps, finish: Callable[[Any], Any]) -> Steps:
    """Return steps whose result passes through ``finish``."""
    return lambda checkpoint: finish(steps(checkpoint))


class Plans:
    """The plans of a service, by request."""

    def __init__(self, engine: Engine) -> None:
        """Start with none."""
        self._engine, self._kept = engine, dict[tuple[str, str, bytes], Plan]()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of plans that are kept."""
        return len(self._kept)

    def plan(self, operation: Operation, op: Op, fields: Fields) -> Plan:
        """Return the plan for a request; raises ``Unprocessable`` for errors outside its tensors."""
        frame = dict(fields)
        for name in FIELDS:
            if isinstance(frame.get(name), dict):
                frame[name] = dict.fromkeys(cast(dict[str, Any], frame[name]))
        try:
            # As JSON, because the orders 1, 1.0 and true are equal in Python and must have different keys.
            key = op.name, operation.name, orjson.dumps(frame)
        except TypeError:  # nested too deeply for orjson, and so invalid for every op
            return self._make(operation, op, frame)
        plan = self._kept.get(key)
        if plan is None:
            plan = self._make(operation, op, frame)
            if len(key[2]) <= MAX_KEY and _has_known_names(plan, frame):
                with self._lock:
                    if len(self._kept) >= KEPT:
                        del self._kept[next(iter(self._kept))]
                    self._kept[key] = plan
        return plan

    def _make(self, operation: Operation, op: Op, frame: Fields) -> Plan:
        request, engine = validated(frame, operation.request), self._engine
        batched = isinstance(request, models.BatchedRequest) and request.batched
        # With many directions, XLA would compile once for each number of directions.
        mode = request.mode or ("graph" if batched else engine.default_mode(op, request.dtype, request.device))
        run = {"device": engine.device(request.device), "max_elements": engine.max_elements}
        spec = bind_spec(op, request.attrs, request.dtype, mode=mode, **run)
        wrt = bind_names(getattr(request, "wrt", None), op.inputs, "wrt")
        of = bind_names(getattr(request, "of", None), op.outputs, "of")
        whole = operation.is_long and not getattr(request, "diagonal", False)
        return Plan(operation, request, wrt, of, spec, op.owner, whole or batched)


def _has_known_names(plan: Plan, frame: Fields) -> bool:
    """Return whether every tensor of a request has the name of a slot; binding reports the others."""
    sides = {"inputs": "inputs", **plan.operation.directions}
    slots = {"inputs": plan.spec.inputs.dtypes, "outputs": plan.spec.outputs.dtypes}
    return all(set(frame.get(field) or ()) <= slots[side].keys() for field, side in sides.items())


def read(body: Body, model: type[Model]) -> Model:
    """Return a body as a model; raises ``Malformed`` or ``Unprocessable``."""
    return validated(fields_of(body), model)


def fields_of(body: Body, parse: Callable[[Body], Any] = parse) -> Document:
    """Return the fields of a body that ``parse`` reads; raises ``Malformed`` or ``Unprocessable``."""
    document = parse(body)
    if not isinstance(document, dict):
        raise wrong((), "expected an object", expected="an object", got=describe(document))
    fields = document if isinstance(document, Document) else Document(cast(dict[str, Any], document))
    if len(fields) > models.MAX_NAMES:
        raise wrong((), "too many fields", expected=f"at most {models.MAX_NAMES} fields", got=str(len(fields)))
    return fields


def validated(fields: Mapping[str, Any], model: type[Model]) -> Model:
    """Return the fields of a request as a model; raises ``Unprocessable``."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise unprocessable(entries(error.errors(include_url=False), model.model_fields)) from None
