"""Plans: what requests ask for, apart from their tensors, worked out once and kept for requests that ask the same.

An optimiser sends the same request a thousand times, with other numbers. Everything that does not depend on the numbers
takes several times as long to work out as reading them.
"""

import threading
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import orjson

from app.autodiff.binding import bind_inputs, bind_names, bind_spec
from app.autodiff.point import Point, Spec
from app.execution.engine import Engine
from app.requests import models
from app.requests.negotiation import validated
from app.requests.operations import Fields, Operation, Query, Work
from app.runtime import traces
from app.tensors.decoding import decode
from ops import Op

# A plan is some kilobytes, and another number among the attributes is another plan.
KEPT = 1024
# Multiply-adds of short work, which takes milliseconds.
SHORT_COST = 1 << 24
TENSORS = ("inputs", "cotangents", "tangents", "vectors")


class Task(NamedTuple):
    """The work of one request, whether it is long, and the point where it is done."""

    work: Work
    is_long: bool
    point: Point


@dataclass(frozen=True)
class Plan:
    """What requests of one kind ask for: ``query`` and ``operation``, at a point of this ``spec``.

    ``budgets`` is how many budgets of traces had been spent when the plan was made: with another number, the default
    mode may be another one.
    """

    operation: Operation
    query: Query
    spec: Spec
    is_long: bool
    budgets: int

    def task(self, fields: Fields) -> Task:
        """Return the work for a request's tensors; raises ``Unprocessable`` for tensors that are wrong."""
        point = bind_inputs(self.spec, fields["inputs"], decode)
        return Task(self.operation.work(self.query, point, fields), self.is_long or point.cost > SHORT_COST, point)


class Plans:
    """The plans of a service."""

    def __init__(self, engine: Engine) -> None:
        """Begin with none."""
        self._engine, self._kept = engine, dict[tuple[str, str, bytes], Plan]()
        self._lock = threading.Lock()

    def plan(self, operation: Operation, op: Op, fields: Fields) -> Plan:
        """Return the plan for a request; raises ``Unprocessable`` for anything wrong with it except its tensors."""
        frame = dict(fields)
        for name in TENSORS:
            if isinstance(frame.get(name), dict):
                frame[name] = dict.fromkeys(cast(dict[str, Any], frame[name]))
        try:
            # Whether an order is 1, 1.0 or true must make a difference, and in JSON it does.
            key = op.name, operation.name, orjson.dumps(frame)
        except TypeError:  # nested too deeply for the writer, and so nothing that an op takes
            return self._make(operation, op, frame)
        plan = self._kept.get(key)
        if plan is None or plan.budgets != traces.TRACES.spent:
            plan = self._make(operation, op, frame)
            with self._lock:
                if len(self._kept) >= KEPT:
                    del self._kept[next(iter(self._kept))]
                self._kept[key] = plan
        return plan

    def _make(self, operation: Operation, op: Op, frame: Fields) -> Plan:
        budgets, request, engine = traces.TRACES.spent, validated(frame, operation.request), self._engine
        batched = isinstance(request, models.BatchedRequest) and request.batched
        # For many directions XLA would compile every number of them.
        mode = request.mode or ("graph" if batched else engine.default_mode(op, request.dtype, request.device))
        run = {"device": engine.device(request.device), "max_elements": engine.max_elements}
        spec = bind_spec(op, request.attrs, request.dtype, mode=mode, **run)
        wrt = bind_names(getattr(request, "wrt", None), op.inputs, "wrt")
        of = bind_names(getattr(request, "of", None), op.outputs, "of")
        # XLA compiles for seconds, and short work should not wait for that.
        compiles = mode == "xla" and op.batching != "elementwise"
        whole = operation.is_long and not getattr(request, "diagonal", False)
        return Plan(operation, Query(request, wrt, of), spec, whole or batched or compiles, budgets)
