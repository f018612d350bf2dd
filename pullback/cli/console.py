"""The output of the command line: coloured on a terminal, plain lines for other programs, and tables that fit."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TextIO

from rich import table
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

INTERRUPTED = 130
"""The exit code after Ctrl-C."""
UNFOLDED = 10_000
"""The width where there is no terminal: lines are never folded."""
INDENT = "  "
STYLES = {
    **{"pass": "green", "fail": "red", "error": "magenta", "inconclusive": "yellow"},
    **{"skipped": "dim", "note": "cyan"},
}
GAP = 2


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


def print_indented(out: Console, text: Text) -> None:
    """Print a paragraph with an indent, which its further lines on a terminal have too."""
    lines = text.wrap(out, max(out.width - len(INDENT), 1)) if out.is_terminal else [text]
    for line in lines:
        line.rstrip()
        out.print(Text(INDENT).append_text(line))


@dataclass
class Table:
    """A table without borders, so that piped output has only columns; without titles, it has no header."""

    titles: Sequence[str]
    rows: list[list[Text]] = field(default_factory=list[list[Text]])

    def add(self, *cells: str, styles: Sequence[str] = ()) -> None:
        """Add a row of plain text, each cell in its style."""
        padded = [*styles, *("" for _ in cells)]
        self.rows.append([styled(cell, style) for cell, style in zip(cells, padded, strict=False)])

    def widths(self, available: int) -> list[int] | None:
        """Return the widths of the columns, ``None`` if they do not fit.

        Every column is as wide as its longest word. The rest of the width goes to those that have more text.
        """
        columns = list(zip([Text(title) for title in self.titles], *self.rows, strict=True))
        least = [max(_longest(cell.plain.split()) for cell in column) for column in columns]
        most = [max(_longest(cell.plain.splitlines()) for cell in column) for column in columns]
        rest = available - GAP * (len(columns) - 1) - sum(least)
        wanted = sum(most) - sum(least)
        if rest < 0:
            return None
        if wanted <= rest:
            return most
        return [low + rest * (high - low) // wanted for low, high in zip(least, most, strict=True)]


def print_table(out: Console, content: Table) -> None:
    """Print a table; without a terminal, as wide as it is, and without trailing spaces."""
    widths = content.widths(out.width)
    if widths is None:
        _print_blocks(out, content)
        return
    grid = table.Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    grid.show_header = any(content.titles)
    for title, width in zip(content.titles, widths, strict=True):
        grid.add_column(title, width=width, overflow="fold")
    for row in content.rows:
        grid.add_row(*row)
    if out.is_terminal:
        out.print(grid)
        return
    with out.capture() as captured:
        out.print(grid)
    for line in captured.get().splitlines():
        out.print(Text(line.rstrip()))


def _print_blocks(out: Console, content: Table) -> None:
    """Print each row below its first cell: a line for each other cell, after its title."""
    for first, *others in content.rows:
        out.print(first)
        for title, cell in zip(content.titles[1:], others, strict=True):
            if cell.plain:
                print_indented(out, Text.assemble(f"{title}: " if title else "", cell))


def _longest(parts: Sequence[str]) -> int:
    return max(map(cell_len, parts), default=0)
