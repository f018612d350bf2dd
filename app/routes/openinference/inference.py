"""POST /v2/models/{model}/infer: a native operation, with tensors in the format of the Open Inference Protocol."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.autodiff.absent import Absent
from app.autodiff.point import Point
from app.errors import Malformed, clip
from app.execution.calls import Call
from app.execution.engine import Engine
from app.http.body import MAX_DIGITS, too_large
from app.http.request import Request
from app.requests.answering import Reply, answer
from app.requests.answers import JSON, content_type
from app.requests.brief import Reading
from app.requests.operations import OPERATIONS
from app.requests.plans import Plan, Plans
from app.routes.openinference.compression import accepted_coding, compress, content_coding, inflate
from app.routes.openinference.models import DATATYPES, VERSION, Model, ModelOutput, dialect
from app.routes.openinference.requests import (
    SHORT,
    InferenceRequest,
    RequestedOutput,
    known_request,
    raw_request,
    read_request,
)
from app.routes.protocol import zeros
from app.telemetry.counters import Counters
from app.tensors import dtypes
from app.tensors.casting import Source
from app.tensors.layouts import Layout, Placeholder, lay_out
from app.tensors.strict_json import Body
from ops import Array

BINARY = "application/octet-stream"
LENGTH_HEADER = "Inference-Header-Content-Length"
# With this header a body begins with that many bytes of JSON, and tensors follow.
JSON_LENGTH = LENGTH_HEADER.lower().encode()


def admit(request: Request) -> None:
    """Reserve memory for a body, which may be compressed; raises a ``PullbackError``."""
    if request.has_body:
        request.reserve(is_binary=JSON_LENGTH in request.headers)


@dataclass(frozen=True)
class Inference:
    """The handler of inference on one model."""

    engine: Engine
    plans: Plans
    model: Model
    counters: Counters

    async def __call__(self, request: Request) -> None:
        """Answer a request; raises a ``PullbackError`` if it is invalid or fails."""
        request.dialect = partial(dialect, model=self.model)
        coding, lead = content_coding(request.headers), _lead(request)
        body = await request.read(is_binary=lead is not None and coding is None, lead=lead or 0)
        if coding is not None:
            body = await inflate(body, coding, request)
        if lead is not None and lead > len(body):
            raise Malformed(f"expected a body of at least {lead} bytes ({LENGTH_HEADER}), got {len(body)}")
        known = self._known(lead, body)
        reply_coding = accepted_coding(request.headers)
        is_binary = known is not None and known.is_binary and reply_coding is None
        read = partial(self._call, request, lead, reply_coding, known)
        await answer(self.engine, request, read, body, self.model.op.owner, is_binary=is_binary)

    def _known(self, lead: int | None, body: Body) -> InferenceRequest | None:
        """Return the parsed JSON of a request if that takes no time: the JSON is short and cached, or there is none."""
        if lead is None or lead > SHORT:
            return None
        return known_request(self.model, bytes(body[:lead])) if lead else raw_request(self.model, len(body))

    def _call(
        self, request: Request, lead: int | None, reply_coding: str | None, known: InferenceRequest | None, body: Body
    ) -> Call:
        """Return the call of a request; ``known`` is its JSON, if that has been parsed already."""
        with Reading(self.model.op, self.model.operation, len(body)):
            return self._read(request, lead, reply_coding, known, body)

    def _read(
        self, request: Request, lead: int | None, reply_coding: str | None, known: InferenceRequest | None, body: Body
    ) -> Call:
        start = len(body) if lead is None else lead
        inference = known or read_request(self.model, body if lead is None else bytes(body[:lead]), request.parse)
        if inference.timeout_s < math.inf:
            request.deadline.shorten(inference.timeout_s)
        fields = inference.native(body, start)
        plan = self.plans.plan(OPERATIONS[self.model.operation], self.model.op, fields)
        finish = partial(_arrays, [requested.output for requested in inference.outputs], plan)
        write = partial(_write, self.model, inference, reply_coding)
        sources = [tensor.data for tensor in inference.tensors if isinstance(tensor.data, Source)]
        call = plan.call(fields, write, self.counters, sources, finish=finish)
        call.is_long = call.is_long or reply_coding is not None
        return call


def _lead(request: Request) -> int | None:
    """Return the length in bytes of the JSON at the start of the body, ``None`` if the whole body is JSON.

    The header alone decides: aiohttp, and so Triton's asynchronous client, also labels JSON as ``BINARY``.
    """
    content_type(request.headers, (JSON, BINARY), JSON)
    value = request.headers.get(JSON_LENGTH)
    if value is None:
        return None
    if not value.isdigit():
        raise Malformed(f"expected a number of bytes in {LENGTH_HEADER}, got {clip(repr(value), 40)}")
    if len(value) > MAX_DIGITS or int(value) > request.json_limit:
        raise too_large(request.json_limit, f"{clip(value.decode('ascii'), MAX_DIGITS)} bytes of JSON")
    return int(value)


def _arrays(outputs: Sequence[ModelOutput], plan: Plan, point: Point, result: Any) -> Sequence[Array]:
    """Return the requested tensors; absent derivatives are zeros."""
    tree, arrays = plan.operation.tree(plan, result), list[Array]()
    for output in outputs:
        value: Any = tree
        for name in output.path:
            value = value[name]
        arrays.append(zeros(point, output.slots) if isinstance(value, Absent) else value)
    return arrays


def _write(model: Model, inference: InferenceRequest, reply_coding: str | None, arrays: Sequence[Array]) -> Reply:
    """Return the response: JSON, followed by the bytes of the tensors that the client wants in binary."""
    blobs, outputs = list[Placeholder](), list[dict[str, Any]]()
    for requested, array in zip(inference.outputs, arrays, strict=True):
        output, blob = _tensor(requested, array)
        if blob is not None:
            output["parameters"] = {"binary_data_size": blob.array.nbytes}
            blobs.append(blob)
        outputs.append({"name": requested.output.name, **output})
    document: dict[str, Any] = {} if inference.id is None else {"id": inference.id}
    head = lay_out(document | {"model_name": model.name, "model_version": VERSION, "outputs": outputs})
    if not blobs:
        return _compressed(Reply(JSON, head.pieces(), layout=head), reply_coding)
    layout = Layout((*head.constants, *[b""] * len(blobs)), (*head.placeholders, *blobs))
    pieces = layout.pieces()
    size = b"%d" % (sum(map(len, pieces)) - sum(blob.array.nbytes for blob in blobs))
    # With numbers in the JSON, its length depends on them, and so does the header.
    headers = ((LENGTH_HEADER.lower().encode(), size),)
    return _compressed(Reply(BINARY, pieces, headers, None if head.placeholders else layout), reply_coding)


def _compressed(reply: Reply, coding: str | None) -> Reply:
    if coding is None:
        return reply
    headers = (*reply.headers, (b"content-encoding", coding.encode()))
    return Reply(reply.media_type, compress(reply.pieces, coding), headers)


def _tensor(requested: RequestedOutput, array: Array) -> tuple[dict[str, Any], Placeholder | None]:
    """Return an output, its data in it or, in binary, apart."""
    output = {"datatype": DATATYPES[dtypes.of(array.dtype).name], "shape": list(array.shape)}
    if requested.is_binary:
        return output, Placeholder(array, "bytes")
    return output | {"data": Placeholder(array, "flat")}, None
