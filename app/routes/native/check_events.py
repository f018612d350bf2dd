"""The events of a stream of checks: what a request asks for, and what its checks find, step by step."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

from app.errors import Overloaded, PullbackError, wrong
from app.execution.engine import Engine
from app.gradcheck.causes import merge
from app.gradcheck.job import Job
from app.gradcheck.options import Options
from app.gradcheck.pace import Pace, in_order
from app.gradcheck.report import Step
from app.processes.steps import Limits, OpChecks
from app.routes.native.check_models import CheckRequest, ChecksRequest
from app.telemetry.accounts import NOT_CHARGED, Account, Owner
from ops import FLOATS, Op
from pullback.documents import written
from pullback.gradcheck.verdict import Verdict, worst_verdict

Event: TypeAlias = dict[str, Any]

# After so many events that the client has not read, the checks wait.
MOST_EVENTS = 64
# Shorter than what clients and proxies wait for.
BEAT_S = 10.0


@dataclass(frozen=True)
class Requested:
    """What a request for checks of many ops asks for: a job for each op, and the ops that are not served, and why.

    With ``findings``, each finding is a separate event.
    """

    jobs: tuple[Job, ...]
    unavailable: Mapping[str, str]
    findings: bool = False

    @classmethod
    def of(cls, engine: Engine, request: ChecksRequest) -> Self:
        """Return what a request asks for; raises a ``PullbackError`` if it is invalid."""
        options = options_of(engine, request)
        known = {op.name: op.reason for op in engine.registry.unavailable}
        names = request.ops or [*engine.registry.ops, *known]
        unavailable = {name: known[name] for name in names if name in known}
        ops = [engine.op(name) for name in dict.fromkeys(names) if name not in unavailable]
        if request.ops is not None:
            for op in ops:
                check_support(op, options)
        checks = None if request.checks is None else tuple(request.checks)
        return cls(tuple(Job(op.name, options, checks) for op in ops), unavailable, request.findings)

    async def events(
        self, engine: Engine, limits: Limits, key: str = "", account: Account = NOT_CHARGED
    ) -> AsyncGenerator[Event]:
        """Yield the events; steps after the limit are skipped, and ``account`` pays for the others."""
        began = time.monotonic()
        try:
            of_ops = list[OpChecks]()
            for job in self.jobs:
                owner = Owner(job.op, key)
                report = await engine.report(job, time.monotonic() + engine.deadline_s, owner)
                of_ops.append(OpChecks(job, report, limits, owner, engine.counters(job.op, "checks"), account))
            missing = [{"op": name, "reason": reason} for name, reason in self.unavailable.items()]
            run = _Run(engine, of_ops, self.findings)
            yield {"event": "start", "ops": [job.op for job in self.jobs], "unavailable": missing, "steps": run.count}
            reports = list[Event]()
            async with aclosing(run.events()) as events:
                async for event in events:
                    if event["event"] == "report":
                        reports.append(event["report"])
                    yield event
            yield _summary(reports, time.monotonic() - began)
        except PullbackError as error:
            yield {"event": "error", "problem": error.document("/v1/checks")}
        except asyncio.CancelledError:
            error = Overloaded("the service is shutting down and cannot finish this request: try again")
            yield {"event": "error", "problem": error.document("/v1/checks")}
            raise


class _Run:
    """The checks of a stream, as many at a time as there are processes."""

    def __init__(self, engine: Engine, of_ops: Sequence[OpChecks], findings: bool) -> None:
        """Start nothing yet; ``count`` is that of the steps."""
        self.count = sum(len(checks.report.steps) for checks in of_ops)
        self._engine, self._waiting, self._findings = engine, iter(of_ops), findings
        self._pace = Pace([checks.report for checks in of_ops], engine.checks_at_once)
        self._done = dict[str, int]()
        self._events: asyncio.Queue[Event | None] = asyncio.Queue(MOST_EVENTS)

    async def events(self) -> AsyncGenerator[Event]:
        """Yield the events of all checks; where none happens, repeat the progress of what runs: the stream lives."""
        tasks = [asyncio.create_task(self._work()) for _ in range(self._engine.checks_at_once)]
        running = dict[str, Event]()
        try:
            while not all(task.done() for task in tasks) or not self._events.empty():
                try:
                    async with asyncio.timeout(BEAT_S):
                        event = await self._events.get()
                except TimeoutError:
                    for progress in running.values():
                        yield {**progress, "left_s": self._left_s}
                    continue
                if event is None:
                    continue
                if event["event"] == "progress":
                    running[event["op"]] = event
                elif event["event"] == "report":
                    running.pop(event["report"]["op"], None)
                yield event
            for task in tasks:
                await task
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self) -> None:
        """Run the checks of one op after the other, until none is left; put ``None`` at the end."""
        try:
            for checks in self._waiting:
                await self._run(checks)
        finally:
            with suppress(asyncio.QueueFull):  # the consumer looks at the tasks after each event
                self._events.put_nowait(None)

    async def _run(self, checks: OpChecks) -> None:
        """Run the checks of an op, and put their events."""
        steps, found, put = in_order(checks.report), _Found(checks), self._events.put
        async with aclosing(self._engine.checker.steps(checks)) as running:
            async for step in running:
                self._pace.begin(step)
                self._done[checks.job.op] = steps.index(step)
                for event in found.new(step) if self._findings else ():
                    await put(event)
                place = {"op": checks.job.op, "check": step.check}
                done = {"done": sum(self._done.values()), "steps": self.count}
                await put({"event": "progress", **place, **done, "left_s": self._left_s})
        for event in found.new() if self._findings else ():
            await put(event)
        self._done[checks.job.op] = len(steps)
        self._pace.leave(checks.report)
        report = await self._engine.document(checks.job, checks.report)
        await put({"event": "report", "report": report})

    @property
    def _left_s(self) -> float | None:
        return None if self._pace.left_s is None else round(self._pace.left_s, 1)


class _Found:
    """The findings on an op as events, each once."""

    def __init__(self, checks: OpChecks) -> None:
        """Start before the first step."""
        self._checks, self._sent = checks, set[int]()

    def new(self, running: Step | None = None) -> Iterator[Event]:
        """Yield the findings of the steps that have ended since, all but that which runs."""
        for step in self._checks.report.steps:
            if step is not running and step.has_ended and id(step) not in self._sent:
                self._sent.add(id(step))
                for entry in merge(step.reported):
                    yield {"event": "finding", "op": self._checks.job.op, "finding": written(entry)}


def _summary(reports: list[Event], seconds: float) -> Event:
    verdicts: list[Verdict] = [report["verdict"] for report in reports]
    counts = {verdict: verdicts.count(verdict) for verdict in ("pass", "fail", "error", "inconclusive")}
    counts["unfinished"] = sum(report["unfinished"] > 0 for report in reports)
    return {"event": "summary", "verdict": worst_verdict(verdicts), **counts, "seconds": round(seconds, 3)}


def options_of(engine: Engine, request: CheckRequest | ChecksRequest) -> Options:
    """Return the options of a request; raises a ``PullbackError`` for an unknown device."""
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
        max_elements=engine.max_elements,
        strict_claims=request.strict_claims,
    )


def check_support(op: Op, options: Options) -> None:
    """Raise ``Unprocessable`` for dtypes and modes that the op does not support."""
    floats = [op.shown_dtype(dtype) for dtype in op.dtypes if dtype in FLOATS]
    for field, names, known in (("dtypes", options.dtypes, floats), ("modes", options.modes, op.modes)):
        for i, name in enumerate(names or ()):
            if name not in known:
                message = f"op {op.name} does not support this {'float dtype' if field == 'dtypes' else 'mode'}"
                expected = f"some of {', '.join(known)}" if known else "an op with float dtypes"
                raise wrong((field, i), message, expected=expected, got=name)
