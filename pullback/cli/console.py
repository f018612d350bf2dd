"""The output of the command line: coloured on a terminal, plain lines for other programs."""

import sys
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

INTERRUPTED = 130
"""The exit code after Ctrl-C."""
UNFOLDED = 10_000
"""The width where there is no terminal: lines are never folded."""
STYLES = {"pass": "green", "fail": "red", "error": "magenta", "inconclusive": "yellow", "skipped": "dim"}


class PipeConsole(Console):
    """A console that raises ``BrokenPipeError``, where rich would exit with 1, the code of a wrong gradient."""

    def on_broken_pipe(self) -> None:
        """Raise the error again."""
        raise BrokenPipeError


def console(file: TextIO | None = None) -> Console:
    """Return a console for a file, by default standard output."""
    stream = file or sys.stdout
    is_terminal = stream.isatty()
    return PipeConsole(
        file=stream,
        force_terminal=is_terminal,
        width=None if is_terminal else UNFOLDED,
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=not is_terminal,
    )


def clean(text: str) -> str:
    """Return text of the service without control characters, which a terminal would interpret."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


def styled(text: str, style: str = "") -> Text:
    """Return text of the service in a style, without control characters or markup."""
    return Text(clean(text), style)


def new_table(*titles: str) -> Table:
    """Return an empty table without borders, so that piped output has only columns."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in titles:
        table.add_column(title, overflow="fold")
    return table


def print_table(out: Console, table: Table) -> None:
    """Print a table; without a terminal, strip trailing spaces."""
    if out.is_terminal:
        out.print(table)
        return
    with out.capture() as captured:
        out.print(table)
    for line in captured.get().splitlines():
        out.print(Text(line.rstrip()))


def add_row(table: Table, *cells: str, styles: Sequence[str] = ()) -> None:
    """Add a row of plain text, each cell in its style."""
    padded = [*styles, *("" for _ in cells)]
    table.add_row(*(styled(cell, style) for cell, style in zip(cells, padded, strict=False)))
