"""The commands that reproduce findings, so that they run in this shell as they are pasted."""

import shlex
import shutil
import sys
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from pullback.findings import Check
from pullback.reports import Event, Report

NAME, CALL = "pullback ", "pullback call "


def runnable(events: Generator[Event, None, None], url: str | None) -> Generator[Event, None, None]:
    """Yield events, in whose reports the commands have the path of ``pullback`` where it is needed, and the URL.

    ``url`` is the option of this command; the environment variable holds for the next as well.
    """
    suffix = "" if url is None else f" --url {shlex.quote(url)}"
    with closing(events):
        for event in events:
            yield _completed(event, suffix, suffix) if isinstance(event, Report) else event


def runnable_without_service(
    events: Generator[Event, None, None], pages: Sequence[Path]
) -> Generator[Event, None, None]:
    """Yield events of local checks of these pages, in whose reports the commands need no service either."""
    with closing(events):
        for event in events:
            if isinstance(event, Report):
                checked = " ".join(shlex.quote(str(page)) for page in _shown(event.op, pages)) or f"{event.op} --local"
                yield _completed(event, local_option(event.op, pages), "", checked)
            else:
                yield event


def local_option(op: str, pages: Sequence[Path]) -> str:
    """Return the options of ``pullback call`` for an op of these pages, or of those of a service here."""
    return "".join(f" --from {shlex.quote(str(page))}" for page in _shown(op, pages)) or " --local"


def _shown(op: str, pages: Sequence[Path]) -> list[Path]:
    """Return the page of an op; it may be any of them if none has its name."""
    own = [page for page in pages if page.name.partition(".")[0] == op] or pages
    return [page.relative_to(Path.cwd()) if page.is_relative_to(Path.cwd()) else page for page in own]


def _completed(report: Report, of_call: str, of_others: str, checked: str = "") -> Report:
    """Return a report with ``of_call`` after each call among its commands, and ``of_others`` after the others.

    A command that checks the op checks ``checked`` instead, unless that is empty.
    """
    prefix = executable()

    def completed(check: Check) -> Check:
        if check.reproduce is None or not check.reproduce.startswith(NAME):
            return check
        suffix = of_call if check.reproduce.startswith(CALL) else of_others
        command = check.reproduce.removeprefix(NAME)
        if checked:
            command = command.replace(f"check {report.op} ", f"check {checked} ", 1)
        return replace(check, reproduce=f"{prefix} {command}{suffix}")

    checks = [*map(completed, report.checks)]
    entries = [
        entry if check.reproduce is None else {**entry, "reproduce": check.reproduce}
        for entry, check in zip(report.document["checks"], checks, strict=True)
    ]
    return replace(report, checks=checks, document={**report.document, "checks": entries})


def executable() -> str:
    """Return how to run this command line: its name, if the shell finds it, else its path, or Python's with -m."""
    if shutil.which(NAME.strip()):
        return NAME.strip()
    here = Path(sys.argv[0])
    if here.name == NAME.strip() and here.is_file():
        return shlex.quote(str(here.absolute()))
    return f"{shlex.quote(sys.executable)} -m pullback"
