"""The commands that reproduce findings, so that they run in this shell as they are pasted."""

import shlex
import shutil
import sys
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from pullback.reports import Check, Event, Report

NAME = "pullback "


def runnable(events: Generator[Event, None, None], url: str | None) -> Generator[Event, None, None]:
    """Yield events, in whose reports the commands have the path of ``pullback`` where it is needed, and the URL.

    ``url`` is the option of this command; the environment variable holds for the next as well.
    """
    prefix, suffix = executable(), "" if url is None else f" --url {shlex.quote(url)}"

    def completed(check: Check) -> Check:
        if check.reproduce is None or not check.reproduce.startswith(NAME):
            return check
        return replace(check, reproduce=f"{prefix} {check.reproduce.removeprefix(NAME)}{suffix}")

    with closing(events):
        for event in events:
            yield replace(event, checks=[*map(completed, event.checks)]) if isinstance(event, Report) else event


def executable() -> str:
    """Return how to run this command line: its name, if the shell finds it, else its path, or Python's with -m."""
    if shutil.which(NAME.strip()):
        return NAME.strip()
    here = Path(sys.argv[0])
    if here.name == NAME.strip() and here.is_file():
        return shlex.quote(str(here.absolute()))
    return f"{shlex.quote(sys.executable)} -m pullback"
