"""POST /v1/ops/{op}/check and /verify, and /v1/checks, which responds with a stream of events.

A check consists of many short steps, which ``Engine.checker`` runs. It stops when the client disconnects.
"""

import asyncio
import math
import time
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from app.autodiff.binding import bind_directions
from app.execution.calls import Call, CheckRun, with_time_to_answer
from app.execution.engine import Engine
from app.gradcheck import verify
from app.gradcheck.job import Job
from app.http.request import Request
from app.processes.steps import Limits, note_progress
from app.requests.answering import answer
from app.requests.answers import EVENTS, JSON, LINES, accepted, content_type
from app.requests.brief import Reading
from app.requests.fields import read
from app.routes.native.check_events import Event, Requested, check_support, options_of
from app.routes.native.check_models import CheckRequest, ChecksRequest, VerifyRequest
from app.routes.native.points import point_of, spell_nonfinite, spelled_reply
from app.runtime.cancellation import Checkpoint
from app.telemetry.accounts import Owner
from app.telemetry.counters import Counters
from app.tensors import json
from app.tensors.fast_json import parse, places
from app.tensors.json import FIELDS
from app.tensors.strict_json import Body, dumps
from ops import Op

FEWER = "or request fewer ops or checks"
# The places of tensors in a request to verify.
_places = partial(places, fields=(*FIELDS, "gradients"))


@dataclass(frozen=True)
class CheckHandler:
    """The handler that checks one op."""

    engine: Engine
    op: Op
    counters: Counters

    async def __call__(self, request: Request) -> None:
        """Send the report; raises a ``PullbackError`` if the request is invalid or fails."""
        _negotiate(request, (JSON,))
        await answer(self.engine, request, self.call, await request.read(), self.op.owner)

    def call(self, body: Body) -> Call:
        """Return the call of a request."""
        request = read(body, CheckRequest)
        options = options_of(self.engine, request)
        check_support(self.op, options)
        checks = None if request.checks is None else tuple(request.checks)
        self.engine.parameters(self.op, request.parameters)  # raises if they must be read, or if there are none
        job = Job(self.op.name, options, checks, request.inputs, request.attrs, request.parameters)
        return Call(self.op.owner, None, CheckRun(job, request.budget_s), True, spelled_reply, self.counters)


@dataclass(frozen=True)
class VerifyHandler(CheckHandler):
    """The handler that compares a client's gradients with one op's, and sends the verdict.

    It runs in the service, not in a process of checks: it evaluates one gradient at one point some twenty times, no
    more than as many requests for a vjp, which could crash the service as well.
    """

    def call(self, body: Body) -> Call:
        """Return the call of a request."""
        with Reading(self.op, "verify", len(body)):
            request = read(body, VerifyRequest, lambda body: parse(body, _places))
            point, cotangents = point_of(self.engine, self.op, request)
            gradients = bind_directions(request.gradients, point.spec.inputs, json.decode, "gradients")
        tolerances = verify.Tolerances(request.tolerances.absolute, request.tolerances.relative)

        def work(checkpoint: Checkpoint) -> Event:
            del checkpoint
            return verify.verify(point, cotangents, gradients, tolerances)

        return Call(self.op.owner, None, work, True, spelled_reply, self.counters)


@dataclass(frozen=True)
class StreamHandler:
    """The handler that checks many ops, and streams an event for each step."""

    engine: Engine

    async def __call__(self, request: Request) -> None:
        """Send the stream; raises a ``PullbackError`` if the request is invalid."""
        media_type = _negotiate(request, (EVENTS, LINES))
        body, deadline = await request.read(), request.deadline.at

        def requested_by() -> tuple[ChecksRequest, Requested]:
            parameters = read(body, ChecksRequest)
            return parameters, Requested.of(self.engine, parameters)

        parameters, requested = await self.engine.describe(requested_by, Owner("checks", request.key), deadline)
        # The client's deadline limits the stream if there is one, otherwise the server's setting does.
        has_deadline = b"pullback-deadline-ms" in request.headers
        until, cure = (
            (with_time_to_answer(deadline), f"raise Pullback-Deadline-Ms, {FEWER}")
            if has_deadline
            else (time.monotonic() + self.engine.checks_s, f"raise PULLBACK_CHECKS_S, {FEWER}")
        )
        limits = Limits(until, cure, self.engine.deadline_s, self.engine.check_op_s)
        headers = [(b"content-type", media_type.encode()), (b"cache-control", b"no-store")]
        async with self.engine.checks.place():
            await request.send({"type": "http.response.start", "status": 200, "headers": headers})
            request.deadline.start_work(until=math.inf)
            limits = limits.within(parameters.budget_s)
            async with aclosing(requested.events(self.engine, limits, request.key, request.account)) as events:
                async for event in events:
                    if event["event"] == "progress":
                        note_progress(event["done"], event["steps"])
                    line = await asyncio.to_thread(_line, event, media_type)
                    # A client that stops reading must not hold a place.
                    request.deadline.start_send(request.taken)
                    await request.send({"type": "http.response.body", "body": line, "more_body": True})
                    request.deadline.start_work(until=math.inf)
        await request.send({"type": "http.response.body", "body": b""})


def _line(event: Event, media_type: str) -> bytes:
    """Return an event as text; that of a report may take milliseconds to write."""
    line = dumps(spell_nonfinite(event))
    return b"event: %s\ndata: %s\n" % (event["event"].encode(), line) if media_type == EVENTS else line


def _negotiate(request: Request, media_types: tuple[str, ...]) -> str:
    """Return the media type of the response; raises a ``PullbackError`` for a wrong media type."""
    content_type(request.headers)
    return accepted(request.headers, media_types)
