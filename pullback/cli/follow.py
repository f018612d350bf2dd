"""Output of checks: a stream of events, as a progress bar on a terminal and as lines elsewhere, and its failures."""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Column

from pullback.cli.console import INDENT, STYLES, clean, print_indented, styled
from pullback.errors import PullbackError
from pullback.findings import Counting, element, is_accepted, lines, place
from pullback.reports import Event, Progress, Report, Start, Summary, Verification
from pullback.wording import counted

OUT_OF_TIME = "not run: out of time"
VERDICTS = ("pass", "fail", "error", "inconclusive", "skipped")
# On narrower terminals there is no room for the bar beside the name of the step.
WIDTH_OF_BAR = 60
# A step that has run for so long is named. The progress of such a step comes again every ten seconds.
LONG_S = 9.0
# The most ops that a line names.
MOST_NAMED = 8
OF_DERIVATIVES, DIGITS = ("derivative", "second"), (10, 5)
WORDS = {"pass": "passed", "fail": "failed", "error": "broke off"}


def print_findings(out: Console, reports: Iterable[Report], *, quiet: bool = False) -> None:
    """Print all failures with their worst element, faults of the checker, and checks that ran out of time.

    Unless ``quiet``, print inconclusive checks with the reason, and notes on declarations, too.
    """
    shown = ("fail", "error") if quiet else ("fail", "error", "inconclusive")
    for report in reports:
        for check in report.checks:
            # What is inconclusive in an op that passes does not count.
            does_not_count = check.verdict == "inconclusive" and report.verdict == "pass"
            is_note = ((check.note and check.verdict == "pass") or does_not_count) and not quiet
            if check.verdict in shown or is_note:
                what, verdict = f"{report.op} {place(check)}", "note" if is_note else check.verdict
                _print(out, verdict, what, check.sentence, lines(check, report.checks), command=check.reproduce)
        _print_unfinished(out, report)


def print_verification(out: Console, verification: Verification) -> None:
    """Print the verdict on each gradient, its worst element, and the blocks that fail."""
    op = verification.op
    for name, gradient in verification.gradients.items():
        below: list[str] = []
        if gradient.verdict == "fail" and gradient.worst is not None:
            below += element(gradient.worst, "yours", op, name)
        for block in gradient.blocks:
            if block.verdict == "fail":
                last = block.stop - 1
                rows = f"row {last}" if block.start == last else f"rows {block.start} to {last}"
                below.append(f"{rows}: {block.wrong} wrong, {block.ulps:.3g} ULP")
        _print(out, gradient.verdict, f"{op} gradient of {name}", gradient.sentence, below)


def _print_unfinished(out: Console, report: Report) -> None:
    """Print the checks that ran out of time, by sentence."""
    names: dict[str, list[str]] = {}
    for check in report.checks:
        if check.sentence.startswith(OUT_OF_TIME):
            names.setdefault(check.sentence, []).append(check.check)
    for sentence, checks in names.items():
        _print(out, "skipped", f"{report.op} {', '.join(dict.fromkeys(checks))}", sentence, [])


def _print(
    out: Console, verdict: str, what: str, sentence: str, below: list[str], *, command: str | None = None
) -> None:
    style = STYLES.get(verdict, "")
    out.print(styled(f"{verdict.upper()} {what}", f"bold {style}"))
    print_indented(out, styled(sentence, style))
    for line in below:
        if command and line.endswith(command):
            # In one piece, so that it can be copied: the terminal folds it.
            out.print(styled(f"{INDENT}{line}"), soft_wrap=True)
        else:
            print_indented(out, styled(line))


@dataclass
class Outcome:
    """The results in a stream of events, in the order in which its beginning names the ``ops``."""

    reports: list[Report] = field(default_factory=list[Report])
    unavailable: dict[str, str] = field(default_factory=dict[str, str])
    summary: Summary | None = None
    ops: Sequence[str] = ()
    inconclusive: Counting = "fail"
    is_interrupted: bool = False
    lost: PullbackError | None = None
    """Why the events ended early."""

    @property
    def has_failed(self) -> bool:
        """Whether a gradient is wrong."""
        return any(report.verdict == "fail" for report in self.reports)

    @property
    def is_complete(self) -> bool:
        """Whether all requested ops are available, and all checks have run and, if that counts, compared enough."""
        return not self.unavailable and not any(
            report.unfinished or report.count("error") or not is_accepted(report.verdict, self.inconclusive)
            for report in self.reports
        )


def follow(out: Console, events: Iterable[Event], *, quiet: bool = False, inconclusive: Counting = "fail") -> Outcome:
    """Read all events, show the progress, and print the results as they come.

    Ctrl-C ends the reading, and so does an error after the first report, which is then in ``Outcome.lost``.
    """
    outcome = Outcome(inconclusive=inconclusive)
    shows_progress = out.is_terminal and not quiet
    try:
        if shows_progress:
            _show_progress(out, events, outcome)
        else:
            _show_lines(out, events, outcome, quiet=quiet)
    except KeyboardInterrupt:
        outcome.is_interrupted = True
    except PullbackError as error:
        if not outcome.reports:
            raise
        outcome.lost = error
    # They have come as they were ready.
    places = {op: place for place, op in enumerate(outcome.ops)}
    outcome.reports.sort(key=lambda report: places.get(report.op, len(places)))
    print_findings(out, outcome.reports, quiet=quiet)
    if not quiet:
        _print_summary(out, outcome)
    return outcome


def line(report: Report) -> str:
    """Return the line for one op."""
    parts = [counts(report), *judged(report), f"{report.seconds:.2f} s", *([report.page] if report.page else [])]
    return f"{report.op}: {report.verdict} ({'; '.join(parts)})"


def counts(report: Report) -> str:
    """Return the number of checks with each verdict: ``9 passed, 1 failed``."""
    numbers = ((verdict, report.count(verdict)) for verdict in VERDICTS)
    return ", ".join(f"{count} {WORDS.get(verdict, verdict)}" for verdict, count in numbers if count) or "no checks"


def judged(report: Report) -> Iterator[str]:
    """Yield how many derivatives agree to how many digits: ``derivatives: 812 agree to 10 digits, 30 to 5``."""
    parts = [part for part in report.coverage if part.check in OF_DERIVATIVES and part.digits]
    digits = [(digits, count) for part in parts for digits, count in part.digits.items()]
    many, some = (sum(count for known, count in digits if known >= least) for least in DIGITS)
    right, points = sum(count for _, count in digits), sum(part.points for part in parts)
    found = {f"to {DIGITS[0]} digits": many, f"to {DIGITS[1]}": some - many, f"to fewer than {DIGITS[1]}": right - some}
    agree = ", ".join(f"{count} {what}" for what, count in found.items() if count).replace(" ", " agree ", 1)
    others = points - sum(part.compared for part in parts)
    if parts:
        yield "derivatives: " + ", ".join([*filter(None, [agree]), *[f"{others} not comparable"] * bool(others)])


def settings(reports: Sequence[Report]) -> Iterator[str]:
    """Yield what the ops were checked with, each setting once, with the ops that it holds for if there are several."""
    found = dict[str, list[str]]()
    for report in reports:
        if report.modes:  # a server says nothing of its own, and its scope is printed
            found.setdefault(report.setting, []).append(report.op)
    for setting, ops in found.items():
        of = f": {', '.join(ops[:MOST_NAMED])}" + (f" and {len(ops) - MOST_NAMED} more" if ops[MOST_NAMED:] else "")
        yield setting + (of if len(found) > 1 else "")


def _record(outcome: Outcome, event: Event) -> None:
    match event:
        case Start():
            outcome.unavailable, outcome.ops = event.unavailable, event.ops
        case Report():
            outcome.reports.append(event)
        case Summary():
            outcome.summary = event
        case Progress():
            pass


def _print_unavailable(out: Console, event: Start) -> None:
    for op, reason in event.unavailable.items():
        out.print(styled(f"not checked, since unavailable: {op}: {reason}", "yellow"))


def _show_lines(out: Console, events: Iterable[Event], outcome: Outcome, *, quiet: bool) -> None:
    """Print a line for each report, and one for a step that runs while nothing else happens."""
    began: dict[Progress, float] = {}
    for event in events:
        _record(outcome, event)
        if isinstance(event, Start):
            _print_unavailable(out, event)
        elif isinstance(event, Report) and not quiet:
            out.print(styled(line(event)))
        elif isinstance(event, Progress):
            step, now = replace(event, left_s=None), time.monotonic()
            if now - began.setdefault(step, now) >= LONG_S and not quiet:
                began[step] = math.inf  # once is enough
                out.print(styled(f"{event.op}: check {event.check} is running"))


def _show_progress(out: Console, events: Iterable[Event], outcome: Outcome) -> None:
    step = TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis"))
    columns = (step, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.fields[left]}"))
    if out.width < WIDTH_OF_BAR:
        columns = (MofNCompleteColumn(), step)
    with Bar(*columns, console=out, transient=True) as bar:
        task = bar.add_task("starting", total=None, left="")
        for event in events:
            _record(outcome, event)
            if isinstance(event, Report):
                bar.console.print(styled(line(event), STYLES.get(event.verdict, "")))
            elif isinstance(event, Start):
                _print_unavailable(bar.console, event)
                bar.update(task, total=event.steps)
            elif isinstance(event, Progress):
                left = "" if event.left_s is None else f"{round(event.left_s)} s left"
                bar.update(task, completed=event.done, description=clean(f"{event.op} {event.check}"), left=left)


def _print_summary(out: Console, outcome: Outcome) -> None:
    if (summary := outcome.summary) is not None:
        numbers = f"{summary.passed} passed, {summary.failed} failed, {summary.inconclusive} inconclusive"
        # The checks of a server break off by its fault; those of ops have no scope.
        of_servers = any(report.document.get("scope") for report in outcome.reports)
        broken, unfinished = (
            ("broken off", "not finished") if of_servers else ("with a fault of the checker", "out of time")
        )
        numbers += f", {summary.errors} {broken}" if summary.errors else ""
        numbers += f", {len(outcome.unavailable)} unavailable" if outcome.unavailable else ""
        ops = counted(len(outcome.reports) + len(outcome.unavailable), "op")
        # An op out of time has a verdict too.
        late = f"; {summary.unfinished} of them {unfinished}" if summary.unfinished else ""
        out.print(styled(f"{numbers} of {ops} in {summary.seconds:.1f} s{late}", "bold"))
    for text in settings(outcome.reports):
        out.print(styled(text, "dim"))
    if outcome.is_interrupted or outcome.lost:
        how = "interrupted" if outcome.is_interrupted else "ended early"
        out.print(styled(f"{how}: checked {len(outcome.reports)} of {counted(len(outcome.ops), 'op')}", "bold yellow"))
