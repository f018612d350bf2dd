"""Plans: validated requests without their tensors, kept for later requests that differ only in their tensors.

An optimiser sends the same request a thousand times with different numbers. To validate everything else takes several
times as long as to read the numbers.
"""

import threading
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import orjson

from app.autodiff.binding import Decode, bind_directions, bind_inputs, bind_names, bind_spec
from app.autodiff.evaluation import Evaluation
from app.autodiff.point import Point, Spec
from app.execution.calls import Work
from app.execution.engine import Engine
from app.requests import models
from app.requests.negotiation import validated
from app.requests.operations import Directions, Fields, Operation, Query
from app.runtime.cancellation import Checkpoint
from app.tensors.decoding import decode
from ops import Op

# A request with another number among its attributes has another plan. A plan takes some kilobytes, and no more than
# that: its key is bounded, and without unknown names, which could be of any length and number.
KEPT, MAX_KEY = 1024, 4096
# The most multiply-adds of short work, which takes milliseconds.
SHORT_COST = 1 << 24
TENSORS = ("inputs", "cotangents", "tangents", "vectors")


class Task(NamedTuple):
    """The work of one request, whether it is long, and its point."""

    work: Work
    is_long: bool
    point: Point


@dataclass(frozen=True)
class Plan:
    """A request without its tensors: an ``operation`` and its ``query``, bound to a ``spec``."""

    operation: Operation
    query: Query
    spec: Spec
    is_long: bool

    def task(self, fields: Fields, decode: Decode = decode) -> Task:
        """Return the task for the tensors of a request; raises ``Unprocessable`` for invalid tensors.

        If only a run determines the shapes of the outputs, the directions are checked as part of the work.
        """
        operation, spec, directions = self.operation, self.spec, dict[str, Any]()
        point = bind_inputs(spec, fields["inputs"], decode)
        for field, side in operation.directions.items():
            slots = spec.inputs if side == "inputs" else spec.outputs
            directions[field] = bind_directions(fields.get(field), slots, decode, field)
        if None in point.output_shapes.values():
            work: Work = partial(_run, operation, self.query, point, directions)
        else:
            work = operation.work(self.query, point, directions)
        cost = point.size if spec.op.cost is None else point.cost
        return Task(work, self.is_long or cost > SHORT_COST, point)


def _run(operation: Operation, query: Query, point: Point, directions: Directions, checkpoint: Checkpoint) -> Any:
    work = operation.work(query, point, directions)
    return work.run() if isinstance(work, Evaluation) else work(checkpoint)


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
        for name in TENSORS:
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
        return Plan(operation, Query(request, wrt, of), spec, whole or batched)


def _has_known_names(plan: Plan, frame: Fields) -> bool:
    """Return whether every tensor of a request has the name of a slot; binding reports the others."""
    sides = {"inputs": "inputs", **plan.operation.directions}
    slots = {"inputs": plan.spec.inputs.dtypes, "outputs": plan.spec.outputs.dtypes}
    return all(set(frame.get(field) or ()) <= slots[side].keys() for field, side in sides.items())
