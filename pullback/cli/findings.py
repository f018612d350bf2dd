"""Output of failures, with their errors, and of inconclusive checks."""

from collections.abc import Iterable, Iterator
from math import isfinite, isinf

from rich.console import Console

from pullback.cli.console import INDENT, STYLES, print_indented, styled
from pullback.findings import place, summary
from pullback.reports import Check, Report, Verification, Worst

OUT_OF_TIME = "not run: out of time"


def print_findings(out: Console, reports: Iterable[Report], *, quiet: bool = False) -> None:
    """Print all failures with their worst element, faults of the checker, and checks that ran out of time.

    Unless ``quiet``, print inconclusive checks with the reason, and notes on declarations, too.
    """
    shown = ("fail", "error") if quiet else ("fail", "error", "inconclusive")
    for report in reports:
        for check in report.checks:
            is_note = check.note and check.verdict == "pass" and not quiet
            if check.verdict in shown or is_note:
                what, verdict = f"{report.op} {place(check)}", "note" if is_note else check.verdict
                _print(out, verdict, what, check.sentence, lines(check), command=check.reproduce)
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


def lines(check: Check) -> list[str]:
    """Return the lines below the sentence of a check: its places, and its worst element or why it is inconclusive."""
    result = [text] if (text := summary(check.places)) else []
    if check.verdict == "fail" and check.worst is not None:
        result += element(check.worst, "analytic", "numeric", check.input or f"d{check.output}")
    elif check.verdict != "fail" and check.inconclusive:
        result.append(f"no verdict: {', '.join(f'{count} {reason}' for reason, count in check.inconclusive.items())}")
    return result + reproduction(check)


def reproduction(check: Check) -> list[str]:
    """Return the command that reproduces the worst number of a check, after the place of the number in its answer."""
    if check.reproduce is None:
        return []
    of_fault = "analytic" if check.worst is not None else "to reproduce"
    where = "the number" if check.verdict == "inconclusive" else of_fault
    return [f"{where}: {check.shows} of", f"  {check.reproduce}"] if check.shows else [f"{where}: {check.reproduce}"]


def element(worst: Worst, left: str, right: str, leaf: str = "x") -> Iterator[str]:
    """Yield an element, with its two numbers side by side, and their difference; ``leaf`` is the name of its input."""
    index = "" if worst.index is None else f"[{', '.join(map(str, worst.index))}]"
    at = "" if worst.x is None else f"at {leaf} = {worst.x:.9g}"
    head = " ".join(part for part in ("worst element", index, at) if part)
    bar = f" ± {worst.error_bar:.2g}" if worst.error_bar and isfinite(worst.error_bar) else ""
    expected = "expected a finite number" if isinf(worst.error_bar) else f"{right} {worst.numeric:.9g}{bar}"
    yield f"{head}:  {left} {worst.analytic:.9g}  |  {expected}"
    if isinf(worst.error_bar):
        return
    sizes = (("difference {:.3g}", worst.absolute), ("relative {:.3g}", worst.relative), ("{:.3g} ULP", worst.ulps))
    if known := [text.format(size) for text, size in sizes if isfinite(size)]:
        yield ", ".join(known)


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
