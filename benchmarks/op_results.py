"""What a run of ``benchmarks.ops`` writes: the page, the data, and a table of docs/performance.md."""

import json
import platform
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.cells import Outcome, figure
from benchmarks.commit import described
from benchmarks.op_cases import SIZES
from benchmarks.op_goals import CONNECTIONS, Measured, Verdict, median, verdicts
from benchmarks.op_requests import OURS, PEER
from benchmarks.pages import table
from benchmarks.processes import versions
from benchmarks.results import PEERS, machine, own_versions

PAGE, DATA = "ops.md", "ops.json"
HEAD = """\
# Every op, side by side

`python -m benchmarks.ops` writes this page. Each request is one vjp in JSON, with the cotangents, for an op at the
shapes of its first example or at about 1,000 numbers. A load repeats 100 requests with different numbers, over c
connections. A cell has Pullback's requests per second, in brackets its CPU time per request, and after the slash how
many times that is UM-Bridge's rate, and how many times less its CPU time: UM-Bridge serves a gradient in NumPy, written
by hand. "Bare call" is the CPU time of the gradient in TensorFlow alone: one concrete function in the op's default
mode, called in a loop in a process without a server, from NumPy arrays to NumPy arrays. An op with "rows" may compute
many requests in one call.

CPU is the time of all threads and child processes. Each round measures the candidates in turn; figures are medians of
the rounds, and a ratio is the median of the rounds' ratios. Rates depend on the machine and on what else it does, CPU
less so.
"""


class Run(NamedTuple):
    """What was measured, what is missing and why, and the kind of run in words."""

    found: Sequence[Measured]
    absent: Sequence[str]
    kind: str


def markdown(run: Run) -> str:
    """Return the page."""
    rows = [
        (one.goal.title, one.goal.bound, one.size, one.met, ", ".join(_figure(one, *missed) for missed in one.missed))
        for one in verdicts(run.found)
    ]
    parts = [
        HEAD,
        _ours(run.found),
        "",
        "## Goals",
        "",
        table(("figure", "goal", "size", "met by", "missed by"), rows),
        "",
    ]
    parts += ["## UM-Bridge with NumPy", "", "Requests per second, and in brackets the CPU time per request:", ""]
    parts += [_peers(run.found), "", "## Environment", "", *_where(run)]
    return "\n".join(parts) + "\n"


def _ours(found: Sequence[Measured]) -> str:
    head = ("op", "rows", "mode", "numbers", "bare call", *(f"c = {c}" for c in CONNECTIONS))
    return table(head, map(row, found))


def row(one: Measured) -> tuple[str, ...]:
    """Return the line of a case in the table."""
    return (
        f"`{one.case.op}`",
        "yes" if one.rows_are_independent else "no",
        one.mode,
        f"{one.case.numbers:,}",
        _us(one.call),
        *(f"{_both(one.servers[c][OURS])} / {_x(one.rate_ratio(c))}, {_x(one.cpu_ratio(c))}" for c in CONNECTIONS),
    )


def _peers(found: Sequence[Measured]) -> str:
    head = ("op", "numbers", *(f"c = {c}" for c in CONNECTIONS))
    rows = [
        (f"`{one.case.op}`", f"{one.case.numbers:,}", *(_both(one.servers[c][PEER]) for c in CONNECTIONS))
        for one in found
    ]
    return table(head, rows)


def _both(outcome: Outcome) -> str:
    if outcome.why:
        return outcome.why
    rate = median(outcome.rates)
    return "–" if rate is None else f"{figure(rate)} ({_us(outcome)})"


def _us(outcome: Outcome) -> str:
    cpu = median(outcome.cpu_us)
    return "–" if cpu is None else f"{figure(cpu)} µs"


def _x(times: float | None) -> str:
    return "–" if times is None else f"{figure(times)}x"


def _figure(verdict: Verdict, op: str, value: float) -> str:
    return f"`{op}` {verdict.goal.text(value)}"


def _where(run: Run) -> list[str]:
    rounds = [len(one.call.samples) for one in run.found]
    return [
        f"- Commit {described()}.",
        f"- {run.kind}; {machine()}; Linux, Python {platform.python_version()}.",
        f"- Rounds of a case: {min(rounds, default=0)} to {max(rounds, default=0)}; a busy machine has time for fewer.",
        f"- Pullback: {own_versions()}.",
        f"- UM-Bridge: {versions('umbridge_numpy', *PEERS['umbridge_numpy'])}.",
        *(f"- {what}." for what in run.absent),
        "- Load: `benchmarks/load.cc`, one thread.",
    ]


def summary(run: Run) -> str:
    """Return a table of docs/performance.md: the median, slowest and fastest op of each size, relative to UM-Bridge."""
    head = ("size", "connections", "rate, relative to UM-Bridge with NumPy", "CPU per gradient")
    rows = list[tuple[str, ...]]()
    for size in SIZES:
        cases = [one for one in run.found if one.case.size == size]
        for c in CONNECTIONS:
            of_rates = {one.case.op: one.rate_ratio(c) for one in cases}
            of_cpu = {one.case.op: one.cpu_us(c) for one in cases}
            rows.append((size, str(c), _range(of_rates, "x"), _range(of_cpu, " µs")))
    count, page = len({one.case.op for one in run.found}), f"[the figures of each](../benchmarks/results/{PAGE})"
    text = f"{count} ops, at commit {described()} ({page}):"
    return f"{text}\n\n{table(head, rows)}"


def _range(figures: Mapping[str, float | None], unit: str) -> str:
    """Return the median figure, the least and the largest with their ops."""
    known = sorted((value, op) for op, value in figures.items() if value is not None)
    if not known:
        return "–"
    ends = " to ".join(f"{figure(value)}{unit}, `{op}`" for value, op in (known[0], known[-1]))
    return f"{figure(statistics.median(value for value, _ in known))}{unit} ({ends})"


def write(folder: Path, run: Run) -> None:
    """Write the page and the data."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PAGE).write_text(markdown(run))
    lines = ",\n".join(json.dumps(_data(one)) for one in run.found)
    about = json.dumps({"environment": [line.removeprefix("- ") for line in _where(run)]})
    (folder / DATA).write_text(f'{about[:-1]}, "ops": [\n{lines}\n]}}\n')


def _data(one: Measured) -> dict[str, Any]:
    """Return the figures of each round."""
    return {
        "op": one.case.op,
        "size": one.case.size,
        "numbers": one.case.numbers,
        "batching": one.batching,
        "mode": one.mode,
        "bare_call": _rounds(one.call),
        **{f"c{c}": {name: _rounds(outcome) for name, outcome in one.servers[c].items()} for c in CONNECTIONS},
    }


def _rounds(outcome: Outcome) -> dict[str, Any]:
    why = {"why": outcome.why} if outcome.why else {}
    return {**why, "rate": [round(r, 1) for r in outcome.rates], "cpu_us": [round(us, 1) for us in outcome.cpu_us]}
