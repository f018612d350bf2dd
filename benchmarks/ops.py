"""The gradient of every op: Pullback, UM-Bridge and a bare call, in one run: ``make bench-ops``.

Each op is measured at the shapes of its first example and at about 1,000 numbers (``op_cases``), with different numbers
in every request (``op_requests``). UM-Bridge serves a gradient in NumPy, written by hand (``op_gradients``), from the
environment that ``make bench`` uses too. The bare call is one concrete function in a process without a server. After a
warm-up, responses of both servers are checked. Every round measures, for each number of connections, both servers in
turn, and then the bare call, so that other load on the machine affects all of them alike.

``python -m benchmarks.ops --quick`` runs a short version, and ``--only OP,...`` selects ops. Their results go to
``build/bench/results``, those of a whole run to ``benchmarks/results`` and to ``docs/performance.md``.
"""

import argparse
import http.client
import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import NamedTuple

from benchmarks.in_process import InProcess
from benchmarks.load import Posted, post
from benchmarks.op_cases import CASES, OPS, Case
from benchmarks.op_goals import CONNECTIONS, Measured
from benchmarks.op_requests import FORMATS, OURS, Point, points
from benchmarks.op_results import PAGE, Run, row, summary, write
from benchmarks.pages import replace
from benchmarks.processes import BUILD, ROOT, Server, Unavailable, exit_on_sigterm

PAGE_PART = "ops table"
CHECKED = 5


class Plan(NamedTuple):
    """The number of rounds, and the seconds of a load, of the bare call, and of the load before the first round.

    No round of a case starts after ``case_s``, so that a busy machine takes hardly longer; the first one always does.
    """

    rounds: int
    load_s: float
    call_s: float
    warm_up_s: float
    case_s: float


FULL, QUICK = Plan(5, 0.4, 0.25, 0.7, case_s=18), Plan(1, 0.2, 0.1, 0.2, case_s=0)


class Bench(NamedTuple):
    """The running servers by name, the process of the bare calls, and the plan."""

    servers: Mapping[str, Server]
    call: InProcess
    plan: Plan

    def measure(self, case: Case) -> Measured | None:
        """Measure a case in rounds, after a warm-up; return ``None`` if the service lacks the op."""
        status, answer = self.servers[OURS].get(f"/v1/ops/{case.op}")
        if status != http.client.OK:
            return None
        end = time.monotonic() + self.plan.case_s
        contract, drawn = json.loads(answer), list(points(case))
        found = Measured(case, contract["batching"], contract["default_mode"]["vjp"]["float32"])
        with ExitStack() as stack:
            posted = {name: stack.enter_context(Posted(map(FORMATS[name].request, drawn))) for name in self.servers}

            def measure_round(load_s: float, call_s: float) -> None:
                for c in CONNECTIONS:
                    for name, outcome in found.servers[c].items():
                        if not outcome.why:
                            outcome.record(partial(posted[name].load, self.servers[name], c, load_s))
                if not found.call.why:
                    found.call.record(partial(self.call.sample, case.name, call_s))

            measure_round(self.plan.warm_up_s, self.plan.call_s)
            found.forget()
            # By now the fast path answers requests like these.
            for name, server in self.servers.items():
                why = check(server, drawn[:CHECKED])
                for both in found.servers.values():
                    both[name].why = why or both[name].why
            for done in range(self.plan.rounds):
                if not done or time.monotonic() < end:
                    measure_round(self.plan.load_s, self.plan.call_s)
        return found


def check(server: Server, drawn: Sequence[Point]) -> str:
    """Send requests, and return the error of a response, or ""."""
    form = FORMATS[server.name]
    for point in drawn:
        try:
            status, answer = post(server.port, form.request(point))
        except OSError as error:
            return f"no answer: {error}"
        if status != http.client.OK:
            print(f"  {server.name}: refused with {status}: {answer[:200]!r}", flush=True)
            return "refused"
        if not point.is_gradient(form.gradients(point.case, answer)):
            return "wrong numbers"
    return ""


def run_of(ops: Sequence[str], plan: Plan, kind: str) -> Run:
    """Measure ops, and print each figure as it is found."""
    began, busy = time.monotonic(), os.getloadavg()[0]
    found, absent = list[Measured](), list[str]()
    with ExitStack() as stack:
        servers = {name: stack.enter_context(Server(name)) for name in FORMATS}
        bench = Bench(servers, stack.enter_context(InProcess("benchmarks.servers.bare_call")), plan)
        listed = [op["name"] for op in json.loads(servers[OURS].get("/v1/ops")[1])["ops"]]
        absent += [f"{op} has no gradient in NumPy, and is not measured" for op in listed if op not in OPS]
        for case in (case for case in CASES if case.op in ops):
            print(f"{case.op}, {case.size}", flush=True)
            if (one := bench.measure(case)) is None:
                absent.append(f"{case.op}, {case.size}: the service lacks the op")
                continue
            found.append(one)
            print(f"  {'; '.join(row(one)[3:])}", flush=True)
    minutes, busy_after = (time.monotonic() - began) / 60, os.getloadavg()[0]
    return Run(
        found, absent, f"{kind} of {minutes:.0f} minutes, load {busy:.1f} before it and {busy_after:.1f} after it"
    )


def options() -> argparse.Namespace:
    """Return the command line options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ops", description="The gradient of every op.")
    parser.add_argument("--quick", action="store_true", help="a short version, for use while tuning")
    parser.add_argument("--only", metavar="OP,...", help=f"ops, of {', '.join(OPS)}")
    chosen = parser.parse_args()
    chosen.ops = chosen.only.split(",") if chosen.only else OPS
    if strange := [op for op in chosen.ops if op not in OPS]:
        parser.error(f"--only: expected some of {', '.join(OPS)}, got {', '.join(strange)}")
    return chosen


def main() -> None:
    """Run, print and write."""
    chosen = options()
    exit_on_sigterm()
    is_record = not (chosen.quick or chosen.only)
    kind = "The whole run" if is_record else "A quick run" if chosen.quick else "A run of some ops"
    try:
        run = run_of(chosen.ops, QUICK if chosen.quick else FULL, kind)
    except Unavailable as error:
        raise SystemExit(f"A server is missing: {error}") from None
    folder = (ROOT / "benchmarks" if is_record else BUILD) / "results"
    write(folder, run)
    if is_record:
        replace(ROOT / "docs" / "performance.md", PAGE_PART, summary(run))
    print(f"\n{(folder / PAGE).read_text()}\nWritten to {folder.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
