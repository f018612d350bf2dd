"""POST /v2/models/{model}/infer: a native operation, with the tensors as the Open Inference Protocol has them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from starlette.types import Receive, Scope, Send

from app.autodiff.derivatives import Absent
from app.autodiff.point import Point
from app.errors import Malformed, clip
from app.execution.engine import Engine
from app.http.body import too_large
from app.http.limits import JSON_LENGTH, MAX_DIGITS, clock_of, json_limit
from app.requests.answering import Header, Question, Reader, Reply, answer, body_of
from app.requests.negotiation import JSON, Headers, content_type
from app.requests.operations import OPERATIONS
from app.requests.plans import Plan, Plans
from app.routes.openinference.compression import accepted_coding, content_coding, deflated, inflated
from app.routes.openinference.models import DATATYPES, VERSION, Model, ModelOutput
from app.routes.openinference.requests import SHORT, Request, known_request, read_request
from app.routes.protocol import finished, zeros
from app.telemetry.counters import Counters
from app.tensors import dtypes
from app.tensors.json import encode
from app.tensors.strict_json import Body, dumps
from ops import Array

BINARY = "application/octet-stream"
LENGTH_HEADER = "Inference-Header-Content-Length"

Arrays = Sequence[Array]


@dataclass(frozen=True)
class Inference:
    """Answers requests for one model."""

    engine: Engine
    plans: Plans
    model: Model
    counters: Counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; raises every ``PullbackError`` of a request that is wrong, or cannot be answered."""
        headers = dict(scope["headers"])
        coding, lead = content_coding(headers), _lead(headers, scope)
        body = await body_of(scope, receive, is_binary=lead is not None and coding is None, lead=lead or 0)
        if coding is not None:
            body = await inflated(body, coding, scope)
        if lead is not None and lead > len(body):
            raise Malformed(f"expected a body of at least {lead} bytes ({LENGTH_HEADER}), got {len(body)}")
        asked = known_request(self.model, bytes(body[:lead])) if lead is not None and lead <= SHORT else None
        packing = accepted_coding(headers)
        is_binary = asked is not None and asked.is_binary and packing is None
        read = partial(self._question, scope, lead, packing, asked)
        reader = Reader(read, self.model.op.name, self.counters, is_binary)
        await answer(self.engine, reader, body, scope, send)

    def _question(
        self, scope: Scope, lead: int | None, packing: str | None, asked: Request | None, body: Body
    ) -> Question:
        """Return what a body asks for; ``asked`` is what its JSON says, where that has been read."""
        start = len(body) if lead is None else lead
        asked = asked or read_request(self.model, body if lead is None else bytes(body[:lead]))
        if asked.timeout_s < math.inf:
            clock_of(scope).shorten(asked.timeout_s)
        fields = asked.native(body, start)
        plan = self.plans.plan(OPERATIONS[self.model.operation], self.model.op, fields)
        task = plan.task(fields)
        finish = partial(_arrays, [given for given, _ in asked.gives], plan, task.point)
        write = partial(_written, self.model, asked, packing)
        task, write = finished(task._replace(is_long=task.is_long or packing is not None), finish, write)
        return Question(self.model.op.name, task, write, self.counters)


def _lead(headers: Headers, scope: Scope) -> int | None:
    """Return how many bytes of JSON the body begins with, ``None`` where it is nothing else."""
    kind = content_type(headers, (JSON, BINARY), JSON)
    value = headers.get(JSON_LENGTH)
    if value is None:
        if kind == BINARY:
            raise Malformed(f"expected {LENGTH_HEADER}, the number of bytes of JSON before the tensors, got none")
        return None
    if not value.isdigit():
        raise Malformed(f"expected a number of bytes in {LENGTH_HEADER}, got {clip(repr(value), 40)}")
    if len(value) > MAX_DIGITS or int(value) > json_limit(scope):
        raise too_large(json_limit(scope), f"{clip(value.decode('ascii'), MAX_DIGITS)} bytes of JSON")
    return int(value)


def _arrays(gives: Sequence[ModelOutput], plan: Plan, point: Point, found: Any) -> Arrays:
    """Return the tensors that are wanted, of what an operation has found; a derivative that is absent is 0."""
    tree, arrays = plan.operation.tree(plan.asked, found), list[Array]()
    for given in gives:
        value: Any = tree
        for name in given.path:
            value = value[name]
        arrays.append(zeros(point, given.slots) if isinstance(value, Absent) else value)
    return arrays


def _written(model: Model, asked: Request, packing: str | None, arrays: Arrays) -> Reply:
    """Return the answer: JSON, and behind it the bytes of those tensors that are wanted so."""
    blobs, outputs = list[Body](), list[dict[str, Any]]()
    for (given, is_binary), array in zip(asked.gives, arrays, strict=True):
        row = dtypes.of(array.dtype)
        output: dict[str, Any] = {"name": given.name, "datatype": DATATYPES[row.name], "shape": list(array.shape)}
        if is_binary:
            wire: Array = np.asarray(array, row.wire, order="C")
            output["parameters"] = {"binary_data_size": wire.nbytes}
            blobs.append(wire.reshape(-1).view(np.uint8).data)
        else:
            output["data"] = encode(array, "flat")["data"]
        outputs.append(output)
    document: dict[str, Any] = {} if asked.id is None else {"id": asked.id}
    head = dumps(document | {"model_name": model.name, "model_version": VERSION, "outputs": outputs})
    length = ((LENGTH_HEADER.lower().encode(), b"%d" % len(head)),) if blobs else ()
    return _reply(BINARY if blobs else JSON, [head, *blobs], length, packing)


def _reply(media_type: str, pieces: Sequence[Body], headers: tuple[Header, ...], packing: str | None) -> Reply:
    if packing is not None:
        pieces = deflated(pieces, packing)
        headers += ((b"content-encoding", packing.encode()),)
    return Reply(media_type, pieces, sum(map(len, pieces)), headers)
