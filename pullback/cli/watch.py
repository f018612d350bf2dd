"""``pullback watch``: check pages at every save, the cheap checks first, and say what differs from the last time."""

import queue
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Self

import typer
from rich.console import Console

from pullback.cli.console import STYLES, console, styled
from pullback.cli.follow import line, print_findings
from pullback.cli.pages import GRAPH, pages_and_names
from pullback.cli.reproduction import PointFiles, runnable_without_service
from pullback.errors import BadArgument, PullbackError
from pullback.local_checks import LocalChecks
from pullback.page_files import is_of_saved_model
from pullback.reports import Event, Report, Start
from pullback.service_process import NOT_INSTALLED

# Editors write a file in several steps; these are one save.
DEBOUNCE_MS, STEP_MS, POLL_S = 200, 20, 0.5
SOURCES = (".py", ".cc", ".so", GRAPH)
CHEAP = ("contract", "value", "derivative")
"""The checks that run first: they find most mistakes, and take a second."""
WORST_FIRST = ("fail", "error", "inconclusive", "pass", "skipped")


class Saves:
    """Watches folders on a thread, until it is closed."""

    def __init__(self, folders: Iterable[Path]) -> None:
        """Start to watch. Raises ``BadArgument`` if the service is not installed, which brings ``watchfiles``."""
        try:
            from watchfiles import watch  # noqa: PLC0415 - the client does without it
        except ImportError:
            raise BadArgument(NOT_INSTALLED) from None
        self._saves, self._stop = queue.SimpleQueue[Path](), threading.Event()

        def follow() -> None:
            saves = watch(*folders, debounce=DEBOUNCE_MS, step=STEP_MS, stop_event=self._stop, watch_filter=_is_source)
            for changes in saves:
                for _, path in sorted(changes):
                    self._saves.put(Path(path))

        threading.Thread(target=follow, name="saves", daemon=True).start()

    @property
    def is_empty(self) -> bool:
        """Whether all saves have been taken."""
        return self._saves.empty()

    def take(self) -> list[Path]:
        """Wait for a save; return the files that have been saved since the last call."""
        saved: list[Path] = []
        while not saved or not self._saves.empty():
            try:
                # A wait without an end would not see Ctrl-C.
                saved.append(self._saves.get(timeout=POLL_S))
            except queue.Empty:
                continue
        return list(dict.fromkeys(saved))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()


def _is_source(change: object, path: str) -> bool:
    del change
    return path.endswith(SOURCES) or is_of_saved_model(path)


def watch(
    paths: Annotated[list[str], typer.Argument(metavar="PAGE", help="Pages, graphs, or folders of these.")],
    seed: Annotated[int, typer.Option(help="Seed of the random draws.", min=0)] = 0,
) -> None:
    """Check pages now and at every save: pullback watch my_ops/cube.py. Ctrl-C ends it.

    The checks contract, value and derivative come first. If they pass, all others follow, and the last line of an op
    says which checks have another verdict than the last time. A save ends the checks of the page before it.
    """
    pages, names = pages_and_names(paths)
    if names:
        raise BadArgument(f"expected pages or folders, such as my_ops/{names[0]}.py, got {names[0]}")
    with LocalChecks() as checker, Saves({page.parent for page in pages}) as saves:
        loop = Watch(console(), checker, saves, seed)
        due: Sequence[Path] = pages
        while True:
            loop.check(due)
            saved = saves.take()
            due = pages_due(pages, saved)


@dataclass
class Watch:
    """The checks of one command, the last verdicts on each op, by check, and what the last op was checked with."""

    out: Console
    checker: LocalChecks
    saves: Saves
    seed: int
    verdicts: dict[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    setting: str = ""

    def check(self, pages: Sequence[Path]) -> None:
        """Check pages and print what is found, until the next save."""
        for page in pages:
            began = time.monotonic()
            try:
                first = list(self._reports(page, CHEAP))
                if first and all(report.verdict == "pass" for report in first):
                    for report in first:
                        self._print(f"{report.op}: pass so far ({', '.join(CHEAP)}; {_since(began)})", "pass")
                    first = list(self._reports(page, None))
                for report in first:
                    self._finish(report, began)
            except PullbackError as error:
                self._print(f"{page.name}: {error}", "fail")
            if not self.saves.is_empty:
                return

    def _reports(self, page: Path, checks: Sequence[str] | None) -> Iterator[Report]:
        """Yield the reports of a page, until the next save."""
        for event in self._events(page, checks):
            if isinstance(event, Start):
                for reason in event.unavailable.values():
                    self._print(f"{page.name}: {reason}", "fail")
            if isinstance(event, Report):
                yield event

    def _events(self, page: Path, checks: Sequence[str] | None) -> Iterator[Event]:
        events = self.checker.checks([page], None, {"checks": checks, "seed": self.seed})
        for event in runnable_without_service(events, PointFiles.not_written(str(page)), [page]):
            if not self.saves.is_empty:
                return
            yield event

    def _finish(self, report: Report, began: float) -> None:
        """Print the verdict on an op, and what differs from the last time."""
        now = {check: worst(report, check) for check in dict.fromkeys(entry.check for entry in report.checks)}
        before = self.verdicts.get(report.op)
        print_findings(self.out, [report])
        if report.setting != self.setting:
            self._print(report.setting, "skipped")
            self.setting = report.setting
        news = f"; {differences(before, now)}" if before else ""
        self._print(f"{line(report)} after {_since(began)}{news}", report.verdict)
        self.verdicts[report.op] = {**(before or {}), **now}

    def _print(self, text: str, verdict: str) -> None:
        self.out.print(styled(f"{time.strftime('%H:%M:%S')} {text}", STYLES.get(verdict, "")))


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return which checks have another verdict than before; one that ran only once has not."""
    both = [check for check in now if check in before and before[check] != now[check]]
    return ", ".join(f"{check}: {before[check]} -> {now[check]}" for check in both) or "as before"


def worst(report: Report, check: str) -> str:
    """Return the worst verdict of a check in a report."""
    found = {entry.verdict for entry in report.checks if entry.check == check}
    return next(verdict for verdict in WORST_FIRST if verdict in found)


def pages_due(pages: Sequence[Path], saved: Sequence[Path]) -> Sequence[Path]:
    """Return the pages that these saves may change: a graph may use any page beside it."""
    if not set(saved) <= set(pages):
        return pages  # they may import what is not a page
    return [page for page in pages if page in saved or page.name.endswith(GRAPH)]


def _since(began: float) -> str:
    return f"{time.monotonic() - began:.1f} s"
