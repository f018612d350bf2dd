"""The checks of servers as the stream of events that ``Client.checks`` yields."""

import json
import queue
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pullback.errors import BadArgument, ModelFailed, PullbackError
from pullback.gradcheck.number_comparison import Tolerances
from pullback.gradcheck.of.local import Given
from pullback.gradcheck.plan import LEAST, RUNGS, plans
from pullback.gradcheck.report import CHECKS, FunctionReport
from pullback.gradcheck.targets import FUNCTIONS, Checkable
from pullback.gradcheck.verdict import worst_verdict
from pullback.reports import Event, Progress, Report, Start, Summary, event, report

DEFAULT_BUDGET, OF_FUNCTIONS = 1000, 20_000
PUBLISH_S = 0.1
"""The least time between two events of progress."""


@dataclass(frozen=True)
class TargetOptions:
    """How to check: ``budget`` is the most evaluations of each model, ``inputs`` are points, ``timeout`` is in seconds.

    ``config`` is that of UM-Bridge, the parameters of an inference, or the structure for a driver of i-PI; ``given`` is
    what is said of the arguments of a function.
    """

    checks: Sequence[str] | None = None
    seed: int = 0
    budget: int | None = None
    inputs: Sequence[Any] = ()
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    timeout: float = 60.0
    tolerances: Tolerances = field(default_factory=Tolerances)
    given: Given = field(default_factory=Given)


class Stopped(Exception):
    """Nobody waits for the checks any more."""


def check_targets(targets: Sequence[Checkable], options: TargetOptions) -> Generator[Event, None, None]:
    """Check the gradients of models; yield the events. A server that cannot be used is unavailable, with the reason.

    A thread makes the requests, so that Ctrl-C ends the checks at once; the report on what was checked so far is then
    the last event. Raises ``BadArgument`` for options that do not fit.
    """
    began, reports, unavailable = time.monotonic(), list[FunctionReport](), dict[str, str]()
    with ExitStack() as opened:
        for target in targets:
            try:
                reports.append(function_report(target, options, opened))
            except PullbackError as error:
                # One function that cannot be checked does not end the checks of others.
                if isinstance(error, BadArgument) and len(targets) == 1:
                    raise
                unavailable[str(target)] = str(error)
        total, done = sum(each.planned for each in reports), 0
        yield Start([each.target for each in reports], unavailable, total)
        verdicts = list[str]()
        for each in reports:
            yield from _progress(each, done, total, options.timeout if each.protocol in FUNCTIONS else None)
            done += each.planned
            found = report(each.document())
            verdicts.append(found.verdict)
            yield found
        yield summary(verdicts, sum(not each.ended for each in reports), time.monotonic() - began)


def _validate(options: TargetOptions) -> None:
    if options.budget is not None and options.budget < LEAST:
        raise BadArgument(f"--budget: expected at least {LEAST} evaluations, got {options.budget}")
    if unknown := [check for check in options.checks or () if check not in CHECKS]:
        raise BadArgument(f"--check: expected some of {', '.join(CHECKS)} for a server, got {unknown[0]!r}")


def function_report(target: Checkable, options: TargetOptions, opened: ExitStack) -> FunctionReport:
    """Return the report on a model, to be run; raise ``PullbackError`` if it cannot be."""
    _validate(options)
    model = target.connect(opened, options.timeout, options.config, options.given)
    rng = np.random.default_rng(options.seed)
    points = model.points(options.inputs, max(plan.points for plan in RUNGS), rng)
    wanted = None if options.checks is None else tuple(options.checks)
    budget = options.budget or (OF_FUNCTIONS if target.protocol in FUNCTIONS else DEFAULT_BUDGET)
    plan, count = next(plans(model, budget, wanted, len(options.inputs)))
    return FunctionReport(
        target=str(target),
        protocol=target.protocol,
        function=model,
        points=points[:count],
        are_given=bool(options.inputs),
        plan=plan,
        checks=plan.checks(model, wanted),
        budget=budget,
        seed=options.seed,
        tolerances=options.tolerances,
        config={} if target.protocol == "ipi" else options.config,  # a structure, which is long
    )


def _progress(
    each: FunctionReport, before: int, total: int, limit_s: float | None
) -> Generator[Progress | Report, None, None]:
    """Run a report on a thread, and yield its progress; give up an evaluation that takes longer than the limit."""
    news, stopped = queue.SimpleQueue[int | None](), threading.Event()
    began = last = time.monotonic()

    def tell(done: int) -> None:
        nonlocal last
        if stopped.is_set():
            raise Stopped
        if (now := time.monotonic()) - last >= PUBLISH_S:
            last = now
            news.put(done)

    faults = list[Exception]()

    def run() -> None:
        try:
            each.run(tell)
        except Exception as error:  # noqa: BLE001 - the caller's thread raises it
            faults.append(error)
        finally:
            news.put(None)

    yield Progress(each.target, each.running, before, total)
    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    try:
        while (done := _next(news, each, limit_s)) is not None:
            left = (each.planned - done) * (time.monotonic() - began) / max(1, done)
            yield Progress(each.target, each.running, before + min(done, each.planned), total, max(0.0, left))
    except KeyboardInterrupt:
        yield report(each.document())
        raise
    finally:
        stopped.set()
    if faults:
        raise faults[0]


def _next(news: "queue.SimpleQueue[int | None]", each: FunctionReport, limit_s: float | None) -> int | None:
    """Return how many evaluations are done, ``None`` at the end."""
    try:
        return news.get(timeout=limit_s)
    except queue.Empty:
        # Nothing can interrupt the function; its thread ends with the process.
        each.fail(
            ModelFailed(f"no result within {limit_s:g} s: does it loop for ever there? Raise --timeout if it is slow")
        )
        return None


def summary(verdicts: Sequence[str], unfinished: int, seconds: float) -> Summary:
    """Return the end of a stream of reports with these verdicts."""
    counts = {verdict: verdicts.count(verdict) for verdict in ("pass", "fail", "error", "inconclusive")}
    worst = worst_verdict(verdicts)
    document = {"event": "summary", "verdict": worst, **counts, "unfinished": unfinished, "seconds": round(seconds, 3)}
    found = event(json.dumps(document))
    assert isinstance(found, Summary)
    return found
