"""``pullback skill``: how a language model writes the page of an op, checks it, and reads the verdict."""

from pathlib import Path
from typing import Annotated

import typer

from pullback.cli.new_page import TEMPLATES, write_new


def skill(
    to: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Write FOLDER/SKILL.md, which must be new.")] = None,
) -> None:
    """Print a skill for agents: how to write the page of an op, check it, and read the verdict.

    Agents read skills from folders of their own, such as .claude/skills/pullback.
    """
    text = (TEMPLATES / "skill.md.txt").read_text(encoding="utf-8")
    if to is None:
        print(text, end="")
    else:
        print(f"Wrote {write_new(to / 'SKILL.md', text)}.")
