"""Markdown: tables, and the generated parts of pages."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def marked(name: str, text: str) -> str:
    """Return text between the lines that mark the part of a page."""
    begin, end = _marks(name)
    return f"{begin}\n\n{text}\n\n{end}\n"


def publish(name: str, text: str) -> None:
    """Print a part, or write it into the page that the command line names."""
    if pages := sys.argv[1:]:
        replace(Path(pages[0]), name, text)
    else:
        print(marked(name, text), end="")


def replace(page: Path, name: str, text: str) -> None:
    """Replace the marked part of a page; raise ``SystemExit`` if the page has none."""
    begin, end = _marks(name)
    before, first, rest = page.read_text().partition(f"{begin}\n")
    _, last, after = rest.partition(f"{end}\n")
    if not first or not last:
        raise SystemExit(f"expected the lines {begin} and {end} in {page}, got a page without them")
    page.write_text(before + marked(name, text) + after)


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
