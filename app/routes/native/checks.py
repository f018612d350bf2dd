"""POST /v1/ops/{op}/check and /verify, and /v1/checks, which responds with a stream of events.

A check consists of many short steps, which ``Engine.checker`` runs. It stops when the client disconnects.
"""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast

from app.autodiff.binding import bind, bind_directions
from app.autodiff.derived import DerivedOp
from app.errors import Overloaded, PullbackError, wrong
from app.execution.calls import Call, CheckRun, with_time_to_answer
from app.execution.check_steps import Check, Limits
from app.execution.engine import Engine
from app.gradcheck import verify
from app.gradcheck.job import Job
from app.gradcheck.pace import Pace, in_order
from app.gradcheck.target import Options
from app.http.request import Request
from app.requests.answering import Reply, answer, off_loop
from app.requests.negotiation import JSON, accepted, content_type
from app.requests.plans import read
from app.routes.native.check_models import CheckRequest, ChecksRequest, VerifyRequest
from app.runtime.cancellation import Checkpoint
from app.telemetry.counters import Counters
from app.tensors import json
from app.tensors.strict_json import Body, dumps
from ops import FLOATS, Op
from pullback.gradcheck.verdict import Verdict, worst_verdict

EVENTS, LINES = "text/event-stream", "application/x-ndjson"

FEWER = "or request fewer ops or checks"

Event: TypeAlias = dict[str, Any]


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
        checks = None if request.checks is None else tuple(request.checks)
        job = Job(self.op.name, options, checks, request.inputs, request.attrs)
        return Call(self.op.owner, CheckRun(job, request.budget_s), True, _reply, self.counters)


@dataclass(frozen=True)
class VerifyHandler(CheckHandler):
    """The handler that compares a client's gradients with one op's, and sends the verdict.

    It runs in the service, not in a process of checks: it evaluates one gradient at one point some twenty times, no
    more than as many requests for a vjp, which could crash the service as well.
    """

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
        step_s = self.engine.deadline_s
        limits = (
            Limits(with_time_to_answer(request.deadline.at), f"raise Pullback-Deadline-Ms, {FEWER}", step_s)
            if has_deadline
            else Limits(time.monotonic() + self.engine.checks_s, f"raise PULLBACK_CHECKS_S, {FEWER}", step_s)
        )
        checks = None if parameters.checks is None else tuple(parameters.checks)
        jobs = [Job(op.name, options, checks) for op in ops]
        headers = [(b"content-type", media_type.encode()), (b"cache-control", b"no-store")]
        async with self.engine.checks.place():
            await request.send({"type": "http.response.start", "status": 200, "headers": headers})
            request.deadline.start_work(until=math.inf)
            limits = limits.within(parameters.budget_s)
            async with aclosing(_events(self.engine, request, jobs, unavailable, limits)) as events:
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
    engine: Engine, request: Request, jobs: Sequence[Job], unavailable: Mapping[str, str], limits: Limits
) -> AsyncGenerator[Event]:
    """Yield the events; steps after the limit are skipped."""
    began = time.monotonic()
    try:
        checks = list[Check]()
        for job in jobs:
            owner = job.op + request.owner_suffix
            report = await engine.report(job, time.monotonic() + engine.deadline_s, owner)
            checks.append(Check(job, report, limits, owner, engine.counters(job.op, "checks")))
        count, done, reports = sum(len(check.report.steps) for check in checks), 0, list[Event]()
        pace = Pace([check.report for check in checks])
        missing = [{"op": name, "reason": reason} for name, reason in unavailable.items()]
        yield {"event": "start", "ops": [job.op for job in jobs], "unavailable": missing, "steps": count}
        for check in checks:
            steps = in_order(check.report)
            async with aclosing(engine.checker.steps(check)) as running:
                async for step in running:
                    pace.begin(step)
                    left_s = None if pace.left_s is None else round(pace.left_s, 1)
                    place = {"op": check.job.op, "check": step.check}
                    yield {
                        **{"event": "progress", **place, "done": done + steps.index(step), "steps": count},
                        "left_s": left_s,
                    }
            done += len(steps)
            pace.leave(check.report)
            reports.append(check.report.document())
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


def spell_nonfinite(tree: Any) -> Any:
    """Return a document with NaN and the infinities as strings, because JSON has no numbers for them."""
    if isinstance(tree, float) and not math.isfinite(tree):
        return "NaN" if math.isnan(tree) else "Infinity" if tree > 0 else "-Infinity"
    if isinstance(tree, Mapping):
        return {key: spell_nonfinite(value) for key, value in cast(Mapping[str, Any], tree).items()}
    if isinstance(tree, list | tuple):
        return [spell_nonfinite(value) for value in cast(list[Any], tree)]
    return tree
