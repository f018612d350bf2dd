"""How findings are written: what failed and by how much, and what could not be told."""

from collections.abc import Iterable, Iterator

from rich.console import Console

from pullback.cli.console import STYLES, styled
from pullback.reports import Check, Report, Verification, Worst


def print_findings(out: Console, reports: Iterable[Report], *, quiet: bool = False) -> None:
    """Print all failures, each with its worst element; unless ``quiet``, what is inconclusive with the reason."""
    shown = ("fail",) if quiet else ("fail", "inconclusive")
    for report in reports:
        for check in report.checks:
            if check.verdict in shown:
                _print(out, check.verdict, f"{report.op} {place(check)}", check.sentence, lines(check))


def print_verification(out: Console, found: Verification) -> None:
    """Print the verdict on each gradient, its worst element, and the blocks that fail."""
    for name, one in found.gradients.items():
        worst = [] if one.worst is None or one.verdict != "fail" else list(element(one.worst, "yours", found.op))
        wrong = [block for block in one.blocks if block.verdict == "fail"]
        blocks = [f"rows {b.start} to {b.stop - 1}: {b.wrong} wrong, {b.ulps:.3g} ULP" for b in wrong]
        _print(out, one.verdict, f"{found.op} gradient of {name}", one.sentence, [*worst, *blocks])


def place(check: Check) -> str:
    """Return where a check was made: ``derivative, dy/dx, order 1, float32, graph, cpu, limit=2``."""
    pair = [] if check.output is None or check.input is None else [f"d{check.output}/d{check.input}"]
    order = [] if check.order is None else [f"order {check.order}"]
    attrs = [f"{name}={value}" for name, value in check.attrs.items()]
    parts = [check.check, *pair, *order, check.dtype, check.mode, check.device, *attrs]
    return ", ".join(part for part in parts if part)


def lines(check: Check) -> list[str]:
    """Return the lines below the sentence of a check: its worst element, or why it is inconclusive."""
    if check.verdict == "fail":
        return [] if check.worst is None else list(element(check.worst, "analytic", "numeric"))
    reasons = [f"{count} {reason}" for reason, count in check.inconclusive.items()]
    return [f"tells nothing: {', '.join(reasons)}"] if reasons else []


def element(worst: Worst, left: str, right: str) -> Iterator[str]:
    """Yield an element, two numbers side by side, and how far apart they are."""
    index = "" if worst.index is None else f"[{', '.join(map(str, worst.index))}]"
    at = "" if worst.x is None else f"at x = {worst.x:.9g}"
    head = " ".join(part for part in ("worst element", index, at) if part)
    yield f"{head}:  {left} {worst.analytic:.9g}  |  {right} {worst.numeric:.9g} ± {worst.error_bar:.2g}"
    yield f"apart by {worst.absolute:.3g}, relative {worst.relative:.3g}, {worst.ulps:.3g} ULP"


def _print(out: Console, verdict: str, what: str, sentence: str, below: list[str]) -> None:
    style = STYLES.get(verdict, "")
    out.print(styled(f"{verdict.upper()} {what}", f"bold {style}"))
    out.print(styled(f"  {sentence}", style))
    for line in below:
        out.print(styled(f"  {line}"))
