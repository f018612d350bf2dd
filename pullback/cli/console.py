"""What the command line writes on: a terminal, with colour, or plain lines for other programs."""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

UNFOLDED = 10_000
"""The width of what is no terminal: its lines are never folded."""
STYLES = {"pass": "green", "fail": "red", "inconclusive": "yellow", "skipped": "dim"}


class PipeConsole(Console):
    """A console that leaves a closed pipe to the caller, where rich would exit with 1, which means a failed check."""

    def on_broken_pipe(self) -> None:
        """Let the error go on."""
        raise BrokenPipeError


def console() -> Console:
    """Return the console of standard output."""
    is_terminal = sys.stdout.isatty()
    return PipeConsole(
        file=sys.stdout,
        force_terminal=is_terminal,
        width=None if is_terminal else UNFOLDED,
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=not is_terminal,
    )


def clean(text: str) -> str:
    """Return a text of the service without control characters, which a terminal would obey."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def styled(text: str, style: str = "") -> Text:
    """Return a text of the service to be printed as it is, in a style."""
    return Text(clean(text), style)


def table(*titles: str) -> Table:
    """Return an empty table without a frame, so that what is piped on is columns and nothing else."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in titles:
        made.add_column(title, overflow="fold")
    return made


def print_table(out: Console, made: Table) -> None:
    """Print a table; where it is piped on, its lines end with their last word."""
    if out.is_terminal:
        out.print(made)
        return
    with out.capture() as captured:
        out.print(made)
    for line in captured.get().splitlines():
        out.print(Text(line.rstrip()))


def add(made: Table, *cells: str, styles: Sequence[str] = ()) -> None:
    """Add a row of plain texts, each in its style."""
    padded = [*styles, *("" for _ in cells)]
    made.add_row(*(styled(cell, style) for cell, style in zip(cells, padded, strict=False)))
