"""Following a stream of events: with a bar on a terminal, line by line elsewhere."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from pullback.cli.console import STYLES, add, clean, print_table, styled, table
from pullback.cli.findings import print_findings
from pullback.cli.junit import junit
from pullback.errors import BadArgument
from pullback.reports import Event, Progress, Report, Start, Summary

VERDICTS = ("pass", "fail", "inconclusive", "skipped")
WORDS = {"pass": "passed", "fail": "failed"}


@dataclass
class Outcome:
    """What a stream told."""

    reports: list[Report] = field(default_factory=list[Report])
    unavailable: dict[str, str] = field(default_factory=dict[str, str])
    summary: Summary | None = None

    @property
    def has_failed(self) -> bool:
        """Whether a gradient is wrong."""
        return any(report.verdict == "fail" for report in self.reports)


def follow(out: Console, events: Iterable[Event], *, quiet: bool = False, all_ops: bool = True) -> Outcome:
    """Take all events, show how far they are, and print what they told.

    Ops that are unavailable are missed only where all were asked for (``all_ops``).
    """
    outcome = Outcome()
    if out.is_terminal and not quiet:
        _with_bar(out, events, outcome)
        _print_table(out, outcome.reports)
    else:
        for event in events:
            _take(outcome, event)
            if isinstance(event, Report) and not quiet:
                out.print(styled(line(event)))
    print_findings(out, outcome.reports, quiet=quiet)
    if not all_ops:
        outcome.unavailable = {}
    if not quiet:
        _print_end(out, outcome)
    return outcome


def line(report: Report) -> str:
    """Return one op in a line."""
    return f"{report.op}: {report.verdict} ({counts(report)}; {report.seconds:.2f} s)"


def counts(report: Report) -> str:
    """Return how many checks have which verdict: ``9 passed, 1 failed``."""
    found = ((verdict, report.count(verdict)) for verdict in VERDICTS)
    return ", ".join(f"{count} {WORDS.get(verdict, verdict)}" for verdict, count in found if count) or "no checks"


def write_json(path: Path, outcome: Outcome) -> None:
    """Write all reports, as the service sent them, and the summary into a file."""
    summary = None if outcome.summary is None else outcome.summary.document
    document: dict[str, Any] = {
        "reports": [report.document for report in outcome.reports],
        "unavailable": outcome.unavailable,
        "summary": summary,
    }
    _write("--json", path, json.dumps(document, ensure_ascii=False, indent=1).encode() + b"\n")


def write_junit(path: Path, outcome: Outcome) -> None:
    """Write all reports into a file of JUnit XML."""
    _write("--junit", path, junit(outcome.reports) + b"\n")


def _take(outcome: Outcome, event: Event) -> None:
    match event:
        case Start():
            outcome.unavailable = event.unavailable
        case Report():
            outcome.reports.append(event)
        case Summary():
            outcome.summary = event
        case Progress():
            pass


def _with_bar(out: Console, events: Iterable[Event], outcome: Outcome) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=out, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        for event in events:
            _take(outcome, event)
            if isinstance(event, Start):
                bar.update(task, total=event.steps)
            elif isinstance(event, Progress):
                bar.update(task, completed=event.done, description=clean(f"{event.op} {event.check}"))


def _print_table(out: Console, reports: list[Report]) -> None:
    made = table("op", "verdict", *VERDICTS, "seconds")
    for report in reports:
        found = [report.count(verdict) for verdict in VERDICTS]
        cells = [str(count) if count else "" for count in found]
        styles = ["bold", STYLES.get(report.verdict, ""), *(STYLES[verdict] for verdict in VERDICTS)]
        add(made, report.op, report.verdict, *cells, f"{report.seconds:.2f}", styles=styles)
    print_table(out, made)


def _print_end(out: Console, outcome: Outcome) -> None:
    for op, reason in outcome.unavailable.items():
        out.print(styled(f"unavailable, and so not checked: {op}: {reason}", "yellow"))
    if (summary := outcome.summary) is not None:
        told = f"{summary.passed} passed, {summary.failed} failed, {summary.inconclusive} inconclusive"
        out.print(styled(f"{told} of {len(outcome.reports)} ops in {summary.seconds:.1f} s", "bold"))


def _write(option: str, path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise BadArgument(f"{option}: {path} cannot be written: {error.strerror}") from error
