"""The output of the command line: coloured on a terminal, plain lines for other programs."""

import sys
from typing import TextIO

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
