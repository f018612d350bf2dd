"""Output of a stream of events: a progress bar on a terminal, lines elsewhere."""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from pullback.cli.console import STYLES, add_row, clean, new_table, print_table, styled
from pullback.cli.findings import print_findings
from pullback.cli.junit import junit
from pullback.errors import BadArgument
from pullback.reports import Event, Progress, Report, Start, Summary

STDOUT = Path("-")
VERDICTS = ("pass", "fail", "error", "inconclusive", "skipped")
WORDS = {"pass": "passed", "fail": "failed", "error": "broke off"}


@dataclass
class Outcome:
    """The results in a stream of events."""

    reports: list[Report] = field(default_factory=list[Report])
    unavailable: dict[str, str] = field(default_factory=dict[str, str])
    summary: Summary | None = None
    ops: int = 0
    is_interrupted: bool = False

    @property
    def has_failed(self) -> bool:
        """Whether a gradient is wrong."""
        return any(report.verdict == "fail" for report in self.reports)

    @property
    def is_complete(self) -> bool:
        """Whether all requested ops are available, and all checks have run, without a fault of the checker."""
        return not self.unavailable and not any(report.unfinished or report.count("error") for report in self.reports)


def follow(out: Console, events: Iterable[Event], *, quiet: bool = False) -> Outcome:
    """Read all events, show the progress, and print the results. Ctrl-C ends the reading."""
    outcome = Outcome()
    shows_progress = out.is_terminal and not quiet
    try:
        if shows_progress:
            _show_progress(out, events, outcome)
        else:
            _print_lines(out, events, outcome, quiet=quiet)
    except KeyboardInterrupt:
        outcome.is_interrupted = True
    if shows_progress:
        _print_table(out, outcome.reports)
    print_findings(out, outcome.reports, quiet=quiet)
    for op, reason in outcome.unavailable.items():
        out.print(styled(f"not checked, since unavailable: {op}: {reason}", "yellow"))
    if not quiet:
        _print_summary(out, outcome)
    return outcome


def line(report: Report) -> str:
    """Return the line for one op."""
    return f"{report.op}: {report.verdict} ({counts(report)}; {report.seconds:.2f} s)"


def counts(report: Report) -> str:
    """Return the number of checks with each verdict: ``9 passed, 1 failed``."""
    numbers = ((verdict, report.count(verdict)) for verdict in VERDICTS)
    return ", ".join(f"{count} {WORDS.get(verdict, verdict)}" for verdict, count in numbers if count) or "no checks"


def write_json(path: Path, outcome: Outcome) -> None:
    """Write all reports, as the service sent them, and the summary to a file."""
    summary = None if outcome.summary is None else outcome.summary.document
    document: dict[str, Any] = {
        "reports": [report.document for report in outcome.reports],
        "unavailable": outcome.unavailable,
        "summary": summary,
    }
    _write("--json", path, json.dumps(document, ensure_ascii=False, indent=1).encode() + b"\n")


def write_junit(path: Path, outcome: Outcome) -> None:
    """Write all reports to a file as JUnit XML."""
    _write("--junit", path, junit(outcome.reports, outcome.unavailable) + b"\n")


def _record(outcome: Outcome, event: Event) -> None:
    match event:
        case Start():
            outcome.unavailable, outcome.ops = event.unavailable, len(event.ops)
        case Report():
            outcome.reports.append(event)
        case Summary():
            outcome.summary = event
        case Progress():
            pass


def _print_lines(out: Console, events: Iterable[Event], outcome: Outcome, *, quiet: bool) -> None:
    for event in events:
        _record(outcome, event)
        if isinstance(event, Report) and not quiet:
            out.print(styled(line(event)))


def _show_progress(out: Console, events: Iterable[Event], outcome: Outcome) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bar(*columns, console=out, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        for event in events:
            _record(outcome, event)
            if isinstance(event, Start):
                bar.update(task, total=event.steps)
            elif isinstance(event, Progress):
                bar.update(task, completed=event.done, description=clean(f"{event.op} {event.check}"))


def _print_table(out: Console, reports: list[Report]) -> None:
    table = new_table("op", "verdict", *VERDICTS, "seconds")
    for report in reports:
        cells = [str(report.count(verdict) or "") for verdict in VERDICTS]
        styles = ["bold", STYLES.get(report.verdict, ""), *(STYLES[verdict] for verdict in VERDICTS)]
        add_row(table, report.op, report.verdict, *cells, f"{report.seconds:.2f}", styles=styles)
    print_table(out, table)


def _print_summary(out: Console, outcome: Outcome) -> None:
    if (summary := outcome.summary) is not None:
        numbers = f"{summary.passed} passed, {summary.failed} failed, {summary.inconclusive} inconclusive"
        numbers += f", {summary.errors} with a fault of the checker" if summary.errors else ""
        numbers += f", {summary.unfinished} out of time" if summary.unfinished else ""
        out.print(styled(f"{numbers} of {len(outcome.reports)} ops in {summary.seconds:.1f} s", "bold"))
    if outcome.is_interrupted:
        out.print(styled(f"interrupted: {len(outcome.reports)} of {outcome.ops} ops are checked", "bold yellow"))


def _write(option: str, path: Path, content: bytes) -> None:
    try:
        if path == STDOUT:
            sys.stdout.buffer.write(content)
        else:
            path.write_bytes(content)
    except OSError as error:
        raise BadArgument(f"{option}: cannot write {path}: {error.strerror}") from error
