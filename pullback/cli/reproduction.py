"""The commands that reproduce findings, so that they run in this shell as they are pasted."""

import json
import shlex
import shutil
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from pullback.cli.output_files import output_files
from pullback.findings import Check
from pullback.gradcheck.reproduction import POINT_FILE
from pullback.reports import Event, Report

NAME, CALL = "pullback ", "pullback call "


def runnable(
    events: Generator[Event, None, None], points: "PointFiles", url: str | None
) -> Generator[Event, None, None]:
    """Yield events, in whose reports the commands have the path of ``pullback`` where it is needed, and the URL.

    ``url`` is the option of this command; the environment variable holds for the next as well.
    """
    suffix = "" if url is None else f" --url {shlex.quote(url)}"
    with closing(events):
        for event in events:
            yield _completed(event, points, suffix, suffix) if isinstance(event, Report) else event


def runnable_without_service(
    events: Generator[Event, None, None], points: "PointFiles", pages: Sequence[Path]
) -> Generator[Event, None, None]:
    """Yield events of local checks of these pages, in whose reports the commands need no service either."""
    with closing(events):
        for event in events:
            if isinstance(event, Report):
                checked = " ".join(shlex.quote(str(page)) for page in _shown(event.op, pages)) or f"{event.op} --local"
                yield _completed(event, points, local_option(event.op, pages), "", checked)
            else:
                yield event


def local_option(op: str, pages: Sequence[Path]) -> str:
    """Return the options of ``pullback call`` for an op of these pages, or of those of a service here."""
    return "".join(f" --from {shlex.quote(str(page))}" for page in _shown(op, pages)) or " --local"


def _shown(op: str, pages: Sequence[Path]) -> list[Path]:
    """Return the page of an op; it may be any of them if none has its name."""
    own = [page for page in pages if page.name.partition(".")[0] == op] or pages
    return [page.relative_to(Path.cwd()) if page.is_relative_to(Path.cwd()) else page for page in own]


class PointFiles:
    """The files for the points of findings that are too long for a command line.

    The first is ``path``, the next have a number: point.json, point-2.json. Without a path, nothing is written, and the
    command ``again`` comes first, which makes the same checks and writes the files.
    """

    def __init__(self, path: Path | None, again: str) -> None:
        """Write nothing yet."""
        self._path, self._is_written = path or Path(POINT_FILE[1:]), path is not None
        self._again, self._count = f"{again} --save-point {shlex.quote(str(self._path))}; ", 0

    @classmethod
    def not_written(cls, target: str) -> "PointFiles":
        """Return those of a check of a target with no option."""
        return cls(None, f"{executable()} check {shlex.quote(target)}")

    def with_file(self, command: str, point: Mapping[str, Any]) -> str:
        """Return the command with the file of a point. Raises ``BadArgument`` if that cannot be written."""
        self._count += 1
        path = self._path if self._count == 1 else self._path.with_stem(f"{self._path.stem}-{self._count}")
        command = command.replace(POINT_FILE, shlex.quote(f"@{path}"))
        if not self._is_written:
            return self._again + command
        with output_files({"--save-point": path}) as files:
            files["--save-point"].write(lambda stream: stream.write(json.dumps(point).encode()))
        return command


def _completed(report: Report, points: PointFiles, of_call: str, of_others: str, checked: str = "") -> Report:
    """Return a report with ``of_call`` after each call among its commands, and ``of_others`` after the others.

    A command that checks the op checks ``checked`` instead, unless that is empty.
    """
    prefix = executable()

    def completed(check: Check) -> Check:
        command = check.reproduce
        if command is None:
            return check
        if command.startswith(NAME):
            suffix = of_call if command.startswith(CALL) else of_others
            command = command.removeprefix(NAME)
            if checked:
                command = command.replace(f"check {report.op} ", f"check {checked} ", 1)
            command = f"{prefix} {command}{suffix}"
        if check.point is not None and POINT_FILE in command:
            command = points.with_file(command, check.point)
        return replace(check, reproduce=command)

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
