"""The report of an attack: a line for each phase as it ends, then a table, then every finding."""

from collections.abc import Sequence

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from tests.hostile.findings import CRASH, FAULT, FOLDER, GROWTH, LOST, STALL, STATUS, TRACEBACK, WRONG, Findings

COLUMNS = (WRONG, CRASH, FAULT, TRACEBACK, STATUS, LOST, STALL, GROWTH)
# The characters of a finding that are printed; its file has more.
SHOWN = 300
HEADS = ("wrong numbers", "crashes", "500s", "tracebacks", "odd status", "lost", "stalls", "growth")


def progress(console: Console, findings: Findings) -> None:
    """Print how a phase went."""
    failed = ", ".join(f"{count} × {kind}" for kind, count in findings.failures.items())
    mark = f"[red]{failed}[/]" if failed else "[green]nothing found[/]"
    statuses = " ".join(f"{status}:{count}" for status, count in sorted(findings.statuses.items()))
    console.print(f"  {findings.requests} requests in {findings.seconds:.0f} s, {mark}  [dim]{statuses}[/]")


def report(console: Console, phases: Sequence[Findings]) -> None:
    """Print the table and the findings."""
    table = Table(title="The attack", title_justify="left", caption_justify="left", show_footer=True, box=SIMPLE)
    table.caption = (
        "op 500s: failures of the op itself, in its protocol's words. refused: good requests answered 429, 503 or 504. "
        "MiB and files: of all processes, before and after."
    )
    table.add_column("phase", footer="all", no_wrap=True)
    sums = [str(sum(getattr(f, name) for f in phases)) for name in ("requests", "compared", "refused", "op_errors")]
    for head, footer in zip(("requests", "compared", "refused", "op 500s"), sums, strict=True):
        table.add_column(head, footer=footer, justify="right")
    for head, kind in zip(HEADS, COLUMNS, strict=True):
        table.add_column(head, footer=_count(sum(f.failures[kind] for f in phases)), justify="right")
    table.add_column("slowest live", justify="right", footer=f"{max(f.slowest_live_s for f in phases):.2f} s")
    for head in ("MiB", "files"):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("s", justify="right", footer=f"{sum(f.seconds for f in phases):.0f}")
    for f in phases:
        table.add_row(
            f.phase,
            *map(str, (f.requests, f.compared, f.refused, f.op_errors)),
            *(_count(f.failures[kind]) for kind in COLUMNS),
            f"{f.slowest_live_s:.2f} s",
            f"{f.rss_mb[0]:.0f} → {f.rss_mb[1]:.0f}",
            f"{f.files[0]} → {f.files[1]}",
            f"{f.seconds:.0f}",
        )
    console.print(table)
    for line in (line for f in phases for line in f.lines):
        console.print(line[:SHOWN], style="red", markup=False, highlight=False, soft_wrap=True)
    if any(f.failures for f in phases):
        console.print(f"The bytes of the findings are in {FOLDER.relative_to(FOLDER.parents[1])}/.", style="red")


def _count(number: int) -> str:
    return f"[bold red]{number}[/]" if number else "0"
