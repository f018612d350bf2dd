"""POST /v1/ops/{op}/check and /verify, and /v1/checks, which responds with a stream of events.

A check consists of many short steps. Each takes one turn in the scheduler's long slot, so other long work runs in
between, and the check stops when the client disconnects.
"""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast

from app.autodiff.binding import bind, bind_directions
from app.autodiff.derived import DerivedOp
from app.errors import DeadlinePassed, Overloaded, PullbackError, wrong
from app.execution.calls import Call, CheckRun, Steps, with_time_to_answer
from app.execution.engine import Engine
from app.gradcheck import rounding, verify
from app.gradcheck.report import DEADLINE, Report
from app.gradcheck.target import Options
from app.gradcheck.verdict import Verdict, worst_verdict
from app.http.request import Request
from app.requests.answering import Reply, answer, off_loop
from app.requests.fields import read
from app.requests.negotiation import JSON, accepted, content_type
from app.routes.native.check_models import CheckRequest, ChecksRequest, VerifyRequest
from app.runtime.cancellation import Checkpoint
from app.telemetry.counters import Counters
from app.tensors import json
from app.tensors.dtypes import DTYPES
from app.tensors.strict_json import Body, dumps
from ops import FLOATS, Array, Op

EVENTS, LINES = "text/event-stream", "application/x-ndjson"

FEWER = "or request fewer ops or checks"

Event: TypeAlias = dict[str, Any]


class Limit(NamedTuple):
    """The end of a stream, as a time of ``time.monotonic``, and how to allow more time."""

    until: float
    cure: str


@dataclass(frozen=True)
class CheckHandler:
    """The handler that checks one op."""

    engine: Engine
    op: Op
    counters: Counters

    async def __call__(self, request: Request) -> None:
        """Send the report; raises a ``PullbackError`` if the request is invalid or fails."""
        _negotiate(request, (JSON,))
        await answer(self.engine, request, self._call, await request.read(), self.op.owner)

    def _call(self, body: Body) -> Call:
        request = read(body, CheckRequest)
        options = _options(self.engine, request)
        _check_support(self.op, options)
        report = Report(self.op, options)

        def plan(checkpoint: Checkpoint) -> None:
            del checkpoint
            report.plan(decode_widening, checks=request.checks, inputs=request.inputs, attrs=request.attrs)

        work = CheckRun(_turns(report, plan), report.document, lambda: report.has_begun)
        return Call(self.op.owner, work, True, _reply, self.counters)


def _turns(report: Report, plan: Steps) -> Iterator[Steps]:
    """Yield the turns of a check: to plan its steps, which draws the points, and each of the steps."""
    yield plan
    for step in report.steps:
        yield step.run


@dataclass(frozen=True)
class VerifyHandler(CheckHandler):
    """The handler that compares a client's gradients with one op's, and sends the verdict."""

    def _call(self, body: Body) -> Call:
        request, engine = read(body, VerifyRequest), self.engine
        mode = request.mode or engine.default_mode(self.op, request.dtype, request.device)
        run = {"device": engine.device(request.device), "max_elements": engine.max_elements}
        point = bind(self.op, request.inputs, request.attrs, request.dtype, json.decode, mode=mode, **run)
        cotangents = None
        if request.cotangents is not None:
            cotangents = bind_directions(request.cotangents, point.spec.outputs, json.decode, "cotangents")
        gradients = bind_directions(request.gradients, point.spec.inputs, json.decode, "gradients")
        tolerances = verify.Tolerances(request.tolerances.absolute, request.tolerances.relative)

        def work(checkpoint: Checkpoint) -> Event:
            del checkpoint
            return verify.verify(point, cotangents, gradients, tolerances)

        return Call(self.op.owner, work, True, _reply, self.counters)


@dataclass(frozen=True)
class StreamHandler:
    """The handler that checks many ops, and streams an event for each step."""

    engine: Engine

    async def __call__(self, request: Request) -> None:
        """Send the stream; raises a ``PullbackError`` if the request is invalid."""
        media_type = _negotiate(request, (EVENTS, LINES))
        parameters = await off_loop(partial(read, model=ChecksRequest), await request.read())
        options = _options(self.engine, parameters)
        known = {op.name: op.reason for op in self.engine.registry.unavailable}
        names = parameters.ops or [*self.engine.registry.ops, *known]
        unavailable = {name: known[name] for name in names if name in known}
        ops = [self.engine.op(name) for name in dict.fromkeys(names) if name not in unavailable]
        if parameters.ops is not None:
            for op in ops:
                _check_support(op, options)
        # The client's deadline limits the stream if there is one, otherwise the server's setting does.
        has_deadline = b"pullback-deadline-ms" in request.headers
        limit = (
            Limit(with_time_to_answer(request.deadline.at), f"raise Pullback-Deadline-Ms, {FEWER}")
            if has_deadline
            else Limit(time.monotonic() + self.engine.checks_s, f"raise PULLBACK_CHECKS_S, {FEWER}")
        )
        headers = [(b"content-type", media_type.encode()), (b"cache-control", b"no-store")]
        async with self.engine.checks.place():
            await request.send({"type": "http.response.start", "status": 200, "headers": headers})
            request.deadline.start_work(until=math.inf)
            async with aclosing(
                _events(self.engine, request, ops, unavailable, options, checks=parameters.checks, limit=limit)
            ) as events:
                async for event in events:
                    line = dumps(spell_nonfinite(event))
                    if media_type == EVENTS:
                        line = b"event: %s\ndata: %s\n" % (event["event"].encode(), line)
                    # A client that stops reading must not hold a place.
                    request.deadline.start_send()
                    await request.send({"type": "http.response.body", "body": line, "more_body": True})
                    request.deadline.start_work(until=math.inf)
        await request.send({"type": "http.response.body", "body": b""})


def _negotiate(request: Request, media_types: tuple[str, ...]) -> str:
    """Return the media type of the response; raises a ``PullbackError`` for a wrong media type."""
    content_type(request.headers)
    return accepted(request.headers, media_types)


def _reply(document: Event) -> Reply:
    return Reply(JSON, [dumps(spell_nonfinite(document))])


async def _events(
    engine: Engine,
    request: Request,
    ops: list[Op],
    unavailable: Mapping[str, str],
    options: Options,
    *,
    checks: Sequence[str] | None,
    limit: Limit,
) -> AsyncGenerator[Event]:
    """Yield the events; steps after the limit are skipped."""
    began = time.monotonic()
    try:
        planned = [Report(op, options) for op in ops]
        for report in planned:

            def plan(checkpoint: Checkpoint, report: Report = report) -> None:
                del checkpoint
                report.plan(decode_widening, checks=checks)

            deadline, owner = time.monotonic() + engine.deadline_s, report.op.name + request.owner_suffix
            await engine.scheduler.run(plan, queue="check", deadline=deadline, owner=owner)
        count, done, reports = sum(len(report.steps) for report in planned), 0, list[Event]()
        missing = [{"op": name, "reason": reason} for name, reason in unavailable.items()]
        yield {"event": "start", "ops": [op.name for op in ops], "unavailable": missing, "steps": count}
        for report in planned:
            counters = engine.counters(report.op.name, "checks")
            for step in report.steps:
                if time.monotonic() >= limit.until:
                    step.cure, done = limit.cure, done + 1
                    continue
                yield {"event": "progress", "op": report.op.name, "check": step.check, "done": done, "steps": count}
                deadline = min(limit.until, time.monotonic() + engine.deadline_s)
                owner = report.op.name + request.owner_suffix
                with suppress(DeadlinePassed):
                    await engine.scheduler.run(
                        step.run, queue="check", deadline=deadline, owner=owner, counters=counters
                    )
                step.cure, done = limit.cure if deadline == limit.until else DEADLINE, done + 1
            reports.append(report.document())
            yield {"event": "report", "report": reports[-1]}
        yield _summary(reports, time.monotonic() - began)
    except PullbackError as error:
        yield {"event": "error", "problem": error.document("/v1/checks")}
    except asyncio.CancelledError:
        error = Overloaded("the service is shutting down and cannot finish this request: try again")
        yield {"event": "error", "problem": error.document("/v1/checks")}
        raise


def _summary(reports: list[Event], seconds: float) -> Event:
    verdicts: list[Verdict] = [report["verdict"] for report in reports]
    counts = {verdict: verdicts.count(verdict) for verdict in ("pass", "fail", "error", "inconclusive")}
    counts["unfinished"] = sum(report["unfinished"] > 0 for report in reports)
    return {"event": "summary", "verdict": worst_verdict(verdicts), **counts, "seconds": round(seconds, 3)}


def _options(engine: Engine, request: CheckRequest | ChecksRequest) -> Options:
    first = request.device or engine.default_device
    engine.device(first)
    names = [first] if request.device else [first, *(name for name in engine.devices if name != first)]
    return Options(
        devices={name: engine.devices[name] for name in names},
        dtypes=None if request.dtypes is None else tuple(request.dtypes),
        modes=None if request.modes is None else tuple(request.modes),
        orders=tuple(sorted(set(request.orders))),
        seed=request.seed,
        absolute=request.tolerances.absolute,
        relative=request.tolerances.relative,
        work=engine.check_work,
        max_elements=engine.max_elements,
    )


def _check_support(op: Op, options: Options) -> None:
    """Raise ``Unprocessable`` for a derived op, and for dtypes and modes that the op does not support."""
    if isinstance(op, DerivedOp):
        message = "checks are about registered ops: they check every order of the gradient of one"
        raise wrong(("op",), message, expected=op.owner, got=op.name)
    floats = [dtype for dtype in op.dtypes if dtype in FLOATS]
    for field, names, known in (("dtypes", options.dtypes, floats), ("modes", options.modes, op.modes)):
        for i, name in enumerate(names or ()):
            if name not in known:
                message = f"op {op.name} does not support this {'float dtype' if field == 'dtypes' else 'mode'}"
                expected = f"some of {', '.join(known)}" if known else "an op with float dtypes"
                raise wrong((field, i), message, expected=expected, got=name)


def decode_widening(value: Any, dtype: str, loc: tuple[str | int, ...]) -> Array:
    """Decode a tensor; a typed tensor of a narrower float dtype is widened to ``dtype``."""
    own = cast(dict[str, Any], value).get("dtype") if isinstance(value, dict) else None
    if isinstance(own, str) and {own, dtype} <= set(FLOATS) and rounding.eps(own) > rounding.eps(dtype):
        return json.decode(value, own, loc).astype(DTYPES[dtype].numpy)
    return json.decode(value, dtype, loc)


def spell_nonfinite(tree: Any) -> Any:
    """Return a document with NaN and the infinities as strings, because JSON has no numbers for them."""
    if isinstance(tree, float) and not math.isfinite(tree):
        return "NaN" if math.isnan(tree) else "Infinity" if tree > 0 else "-Infinity"
    if isinstance(tree, Mapping):
        return {key: spell_nonfinite(value) for key, value in cast(Mapping[str, Any], tree).items()}
    if isinstance(tree, list | tuple):
        return [spell_nonfinite(value) for value in cast(list[Any], tree)]
    return tree
