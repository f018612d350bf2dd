"""The events of a stream of checks: what a request asks for, and what its checks find, step by step."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeAlias

from app.errors import Overloaded, PullbackError, wrong
from app.execution.check_steps import Check, Limits
from app.execution.engine import Engine
from app.gradcheck import record
from app.gradcheck.job import Job
from app.gradcheck.options import Options
from app.gradcheck.pace import Pace, in_order
from app.gradcheck.places import merge
from app.gradcheck.report import Report, Step
from app.routes.native.check_models import CheckRequest, ChecksRequest
from ops import FLOATS, Op
from pullback.gradcheck.verdict import Verdict, worst_verdict

Event: TypeAlias = dict[str, Any]


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

    async def events(self, engine: Engine, limits: Limits, owner_suffix: str = "") -> AsyncGenerator[Event]:
        """Yield the events; steps after the limit are skipped."""
        began = time.monotonic()
        try:
            checks = list[Check]()
            for job in self.jobs:
                owner = job.op + owner_suffix
                report = await engine.report(job, time.monotonic() + engine.deadline_s, owner)
                checks.append(Check(job, report, limits, owner, engine.counters(job.op, "checks")))
            count, done, reports = sum(len(check.report.steps) for check in checks), 0, list[Event]()
            pace = Pace([check.report for check in checks])
            missing = [{"op": name, "reason": reason} for name, reason in self.unavailable.items()]
            yield {"event": "start", "ops": [job.op for job in self.jobs], "unavailable": missing, "steps": count}
            for check in checks:
                steps, found = in_order(check.report), _Found(check)
                async with aclosing(engine.checker.steps(check)) as running:
                    async for step in running:
                        pace.begin(step)
                        for event in found.new(step) if self.findings else ():
                            yield event
                        left_s = None if pace.left_s is None else round(pace.left_s, 1)
                        place = {"op": check.job.op, "check": step.check}
                        yield {
                            **{"event": "progress", **place, "done": done + steps.index(step), "steps": count},
                            "left_s": left_s,
                        }
                for event in found.new() if self.findings else ():
                    yield event
                done += len(steps)
                pace.leave(check.report)
                page = engine.registry.pages.get(engine.owner(check.job.op))
                reports.append(await asyncio.to_thread(_document, check.report, page))
                await engine.note(check.job, reports[-1])
                yield {"event": "report", "report": reports[-1]}
            yield _summary(reports, time.monotonic() - began)
        except PullbackError as error:
            yield {"event": "error", "problem": error.document("/v1/checks")}
        except asyncio.CancelledError:
            error = Overloaded("the service is shutting down and cannot finish this request: try again")
            yield {"event": "error", "problem": error.document("/v1/checks")}
            raise


def _document(report: Report, page: Path | None) -> Event:
    return record.with_origin(report.document(), page)


class _Found:
    """The findings of a check as events, each once."""

    def __init__(self, check: Check) -> None:
        """Start before the first step."""
        self._check, self._sent = check, set[int]()

    def new(self, running: Step | None = None) -> Iterator[Event]:
        """Yield the findings of the steps that have ended since, all but that which runs."""
        for step in self._check.report.steps:
            if step is not running and step.has_ended and id(step) not in self._sent:
                self._sent.add(id(step))
                for entry in merge(step.reported):
                    yield {"event": "finding", "op": self._check.job.op, "finding": entry}


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
        work=engine.check_work,
        max_elements=engine.max_elements,
        record=isinstance(request, ChecksRequest) and request.record,
    )


def check_support(op: Op, options: Options) -> None:
    """Raise ``Unprocessable`` for dtypes and modes that the op does not support."""
    floats = [dtype for dtype in op.dtypes if dtype in FLOATS]
    for field, names, known in (("dtypes", options.dtypes, floats), ("modes", options.modes, op.modes)):
        for i, name in enumerate(names or ()):
            if name not in known:
                message = f"op {op.name} does not support this {'float dtype' if field == 'dtypes' else 'mode'}"
                expected = f"some of {', '.join(known)}" if known else "an op with float dtypes"
                raise wrong((field, i), message, expected=expected, got=name)
