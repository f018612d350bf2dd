"""What requests ask for, their tensors apart: found out once, and kept for those that ask for the same.

An optimiser asks for one thing a thousand times, with other numbers: what can be said of a request without a look at
its numbers takes several times as long as to read those.
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
from app.requests.operations import Asked, Fields, Operation, Work
from app.runtime.modes import may_compile
from app.tensors.json import Encoding
from app.tensors.safetensors import decode
from ops import Op

# A plan is some kilobytes, and another number among the attributes is another plan.
KEPT = 1024
# Multiply-adds of short work, which takes milliseconds.
SHORT_COST = 1 << 24
TENSORS = ("inputs", "cotangents", "tangents", "vectors")


class Task(NamedTuple):
    """The work of one request, whether it is long, and the point that it is about."""

    work: Work
    is_long: bool
    point: Point


@dataclass(frozen=True)
class Plan:
    """What requests of one kind ask for: ``terms``, and the operation at a point of these spec."""

    operation: Operation
    asked: Asked
    spec: Spec
    is_long: bool

    @property
    def encoding(self) -> Encoding:
        """How tensors are written in the answer."""
        return self.asked.request.encoding

    @property
    def is_current(self) -> bool:
        """Whether it would be made so again: the default mode is another one when XLA may compile no more."""
        return self.asked.request.mode is not None or self.spec.mode != "xla" or may_compile(self.spec.op.name)

    def task(self, fields: Fields) -> Task:
        """Return the work for a request's tensors; raises ``Unprocessable`` for what is wrong with them."""
        point = bind_inputs(self.spec, fields["inputs"], decode)
        return Task(self.operation.work(self.asked, point, fields), self.is_long or point.cost > SHORT_COST, point)


class Plans:
    """The plans of a service."""

    def __init__(self, engine: Engine) -> None:
        """Begin with none."""
        self._engine, self._kept = engine, dict[tuple[str, str, bytes], Plan]()
        self._lock = threading.Lock()

    def plan(self, operation: Operation, op: Op, fields: Fields) -> Plan:
        """Return the plan for a request; raises ``Unprocessable`` for what is wrong with it, its tensors apart."""
        # Whether an order is 1, 1.0 or true must make a difference, and in JSON it does.
        frame = {name: _without_tensors(name, value) for name, value in fields.items()}
        try:
            key = op.name, operation.name, orjson.dumps(frame)
        except TypeError:  # too deep for the writer, and so nothing that an op takes
            return self._made(operation, op, frame)
        plan = self._kept.get(key)
        if plan is None or not plan.is_current:
            plan = self._made(operation, op, frame)
            with self._lock:
                if len(self._kept) >= KEPT:
                    del self._kept[next(iter(self._kept))]
                self._kept[key] = plan
        return plan

    def _made(self, operation: Operation, op: Op, frame: Fields) -> Plan:
        request, engine = validated(frame, operation.request), self._engine
        batched = isinstance(request, models.BatchedRequest) and request.batched
        # Of many directions XLA would compile every number.
        mode = request.mode or ("graph" if batched else engine.default_mode(op, request.dtype, request.device))
        run = {"device": engine.device(request.device), "max_elements": engine.max_elements}
        spec = bind_spec(op, request.attrs, request.dtype, mode=mode, **run)
        wrt = bind_names(getattr(request, "wrt", None), op.inputs, "wrt")
        of = bind_names(getattr(request, "of", None), op.outputs, "of")
        # XLA compiles for seconds, and short work should not have to wait for that.
        compiles = mode == "xla" and op.batching != "elementwise"
        whole = operation.is_long and not getattr(request, "diagonal", False)
        return Plan(operation, Asked(request, wrt, of), spec, whole or batched or compiles)


def _without_tensors(name: str, value: Any) -> Any:
    if name in TENSORS and isinstance(value, dict):
        return dict.fromkeys(cast(dict[str, Any], value))
    return value
