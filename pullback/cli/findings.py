"""Output of failures, with their errors, and of inconclusive checks."""

from collections.abc import Iterable

from rich.console import Console

from pullback.cli.console import INDENT, STYLES, print_indented, styled
from pullback.findings import element, lines, place
from pullback.reports import Report, Verification

OUT_OF_TIME = "not run: out of time"


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
