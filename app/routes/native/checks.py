"""POST /v1/ops/{op}/check and /verify, and /v1/checks, which answers with a stream of events.

A check is many short steps, each a turn in the lane's long slot: other long work comes in between, and a client that
goes away stops it.
"""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, TypeAlias, cast

from starlette.types import ASGIApp, Receive, Scope, Send

from app.autodiff.binding import bind, bind_directions
from app.errors import MethodNotAllowed, Overloaded, PullbackError, wrong
from app.execution.engine import Engine
from app.execution.lane import Checkpoint
from app.gradcheck import rounding, verify
from app.gradcheck.report import Report, Step, steps
from app.gradcheck.target import Options
from app.gradcheck.verdict import Verdict, worst_verdict
from app.http.body import read_body
from app.http.limits import clock_of
from app.requests.negotiation import accepted, content_type, read
from app.routes.native.check_models import CheckRequest, ChecksRequest, VerifyRequest
from app.telemetry.counters import Counters
from app.tensors import json
from app.tensors.dtypes import DTYPES
from app.tensors.json import dumps
from ops import FLOATS, Array, Op

SMALL_BODY = 1 << 16
EVENTS, LINES = "text/event-stream", "application/x-ndjson"

Event: TypeAlias = dict[str, Any]
Body: TypeAlias = bytes | bytearray


def checks(fallback: ASGIApp, engine: Engine) -> ASGIApp:
    """Return an app that answers the checks itself and leaves every other path to ``fallback``."""
    answers = {"check": _check, "verify": _verify}

    async def dispatched(scope: Scope, receive: Receive, send: Send) -> None:
        match scope["path"].split("/") if scope["type"] == "http" else ():
            case ["", "v1", "ops", name, ("check" | "verify") as what]:
                _refuse_other_methods(scope)
                op = engine.op(name)
                content_type(headers := dict(scope["headers"]))
                accepted(headers)
                counters = engine.counters(op.name, what)
                answer = await _answered(partial(answers[what], engine, op, counters), counters, scope, receive)
                await _send(answer, send)
            case ["", "v1", "checks"]:
                _refuse_other_methods(scope)
                content_type(headers := dict(scope["headers"]))
                media_type = accepted(headers, (EVENTS, LINES))
                await _stream(engine, media_type, scope, receive, send)
            case _:
                await fallback(scope, receive, send)

    return dispatched


def _refuse_other_methods(scope: Scope) -> None:
    if scope["method"] != "POST":
        raise MethodNotAllowed(f"expected POST, got {scope['method']}", headers={"Allow": "POST"})


Answering: TypeAlias = Callable[[Body, float], Coroutine[Any, Any, Event]]


async def _answered(answering: Answering, counters: Counters, scope: Scope, receive: Receive) -> bytes:
    body, clock = await read_body(receive), clock_of(scope)
    clock.working()
    document = await answering(body, clock.deadline)
    answer = counters.timed("serialise", lambda: dumps(spelled(document)))
    clock.sending()
    return answer


async def _check(engine: Engine, op: Op, counters: Counters, body: Body, deadline: float) -> Event:
    report, todo = await _off_loop(partial(_planned, engine, op, body), body, counters)
    for step in todo:
        await engine.lane.run(counters.queued(step.run), slot="long", deadline=deadline, owner=op.name)
    return report.document()


def _planned(engine: Engine, op: Op, body: Body) -> tuple[Report, list[Step]]:
    request = read(body, CheckRequest)
    options = _options(engine, request)
    _refuse_unknown(op, options)
    return steps(op, options, widening, checks=request.checks, inputs=request.inputs, attrs=request.attrs)


async def _verify(engine: Engine, op: Op, counters: Counters, body: Body, deadline: float) -> Event:
    compared = await _off_loop(partial(_compared, engine, op, body), body, counters)

    def work(checkpoint: Checkpoint) -> Event:
        del checkpoint
        return compared()

    return await engine.lane.run(counters.queued(work), slot="long", deadline=deadline, owner=op.name)


def _compared(engine: Engine, op: Op, body: Body) -> Callable[[], Event]:
    request = read(body, VerifyRequest)
    mode = request.mode or engine.default_mode(op, request.dtype, request.device)
    run = {"device": engine.device(request.device), "max_elements": engine.max_elements}
    point = bind(op, request.inputs, request.attrs, request.dtype, json.decode, mode=mode, **run)
    dys = bind_directions(request.cotangents, point.spec.outputs, json.decode, "cotangents")
    theirs = bind_directions(request.gradients, point.spec.inputs, json.decode, "gradients") or {}
    tolerances = verify.Tolerances(request.tolerances.absolute, request.tolerances.relative)
    return partial(verify.verify, point, dys, theirs, tolerances)


async def _stream(engine: Engine, media_type: str, scope: Scope, receive: Receive, send: Send) -> None:
    body = await read_body(receive)
    request = read(body, ChecksRequest)
    options = _options(engine, request)
    ops = [engine.op(name) for name in dict.fromkeys(request.ops or engine.registry.ops)]
    if request.ops is not None:
        for op in ops:
            _refuse_unknown(op, options)
    headers = [(b"content-type", media_type.encode()), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    clock_of(scope).working(until=math.inf)
    async with aclosing(_events(engine, ops, options, request, scope)) as events:
        async for event in events:
            await send({"type": "http.response.body", "body": _written(event, media_type), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _events(
    engine: Engine, ops: list[Op], options: Options, request: ChecksRequest, scope: Scope
) -> AsyncGenerator[Event]:
    began, until = time.monotonic(), _until(engine, scope)
    try:
        plans = [_plan(op, options, request) for op in ops]
        count, done, reports = sum(len(todo) for _, todo in plans), 0, list[Event]()
        unavailable = [{"op": op.name, "reason": op.reason} for op in engine.registry.unavailable]
        yield {"event": "start", "ops": [op.name for op in ops], "unavailable": unavailable, "steps": count}
        for report, todo in plans:
            counters = engine.counters(report.op.name, "checks")
            for step in todo:
                yield {"event": "progress", "op": report.op.name, "check": step.check, "done": done, "steps": count}
                deadline = min(until, time.monotonic() + engine.deadline_s)
                work = counters.queued(step.run)
                await engine.lane.run(work, slot="long", deadline=deadline, owner=report.op.name)
                done += 1
            reports.append(report.document())
            yield {"event": "report", "report": reports[-1]}
        yield _summary(reports, time.monotonic() - began)
    except PullbackError as error:
        yield {"event": "error", "problem": error.document("/v1/checks")}
    except asyncio.CancelledError:
        error = Overloaded("the service is shutting down and cannot finish this request: try again")
        yield {"event": "error", "problem": error.document("/v1/checks")}
        raise


def _plan(op: Op, options: Options, request: ChecksRequest) -> tuple[Report, list[Step]]:
    return steps(op, options, widening, checks=request.checks)


def _summary(reports: list[Event], seconds: float) -> Event:
    verdicts: list[Verdict] = [report["verdict"] for report in reports]
    counts = {verdict: verdicts.count(verdict) for verdict in ("pass", "fail", "inconclusive")}
    return {"event": "summary", "verdict": worst_verdict(verdicts), **counts, "seconds": round(seconds, 3)}


def _until(engine: Engine, scope: Scope) -> float:
    """Return when a stream ends: at the client's own deadline where it has one, else when the server says."""
    has_own = b"pullback-deadline-ms" in dict(scope["headers"])
    return clock_of(scope).deadline if has_own else time.monotonic() + engine.checks_s


def _written(event: Event, media_type: str) -> bytes:
    line = dumps(spelled(event))
    return line if media_type == LINES else b"event: %s\ndata: %s\n" % (event["event"].encode(), line)


async def _send(body: bytes, send: Send) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _off_loop(parse: Callable[[], Any], body: Body, counters: Counters) -> Any:
    """Parse a small body at once, and what would hold the event loop on a thread."""
    if len(body) <= SMALL_BODY:
        return counters.timed("parse", parse)
    return await asyncio.to_thread(counters.timed, "parse", parse)


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


def _refuse_unknown(op: Op, options: Options) -> None:
    """Refuse dtypes and modes that the op does not have."""
    floats = [dtype for dtype in op.dtypes if dtype in FLOATS]
    for field, asked, known in (("dtypes", options.dtypes, floats), ("modes", options.modes, op.modes)):
        for i, name in enumerate(asked or ()):
            if name not in known:
                message = f"op {op.name} does not support this {'float dtype' if field == 'dtypes' else 'mode'}"
                expected = f"some of {', '.join(known)}" if known else "an op with float dtypes"
                raise wrong((field, i), message, expected=expected, got=name)


def widening(value: Any, dtype: str, loc: tuple[str | int, ...]) -> Array:
    """Decode a tensor; one that is typed, and narrower than what is wanted, is widened, which loses nothing."""
    own = cast(dict[str, Any], value).get("dtype") if isinstance(value, dict) else None
    if isinstance(own, str) and {own, dtype} <= set(FLOATS) and rounding.eps(own) > rounding.eps(dtype):
        return json.decode(value, own, loc).astype(DTYPES[dtype].numpy)
    return json.decode(value, dtype, loc)


def spelled(tree: Any) -> Any:
    """Return a document in which NaN and the infinities are strings, as JSON wants them."""
    if isinstance(tree, float) and not math.isfinite(tree):
        return "NaN" if math.isnan(tree) else "Infinity" if tree > 0 else "-Infinity"
    if isinstance(tree, Mapping):
        return {key: spelled(value) for key, value in cast(Mapping[str, Any], tree).items()}
    if isinstance(tree, list | tuple):
        return [spelled(value) for value in cast(list[Any], tree)]
    return tree
