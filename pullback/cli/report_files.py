"""The files that ``pullback check`` writes, by option: --json, --junit, --html and --save."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from pullback.baselines import Difference, baseline
from pullback.cli.follow import Outcome
from pullback.cli.junit import junit
from pullback.cli.output_files import OutputFile
from pullback.html.page import page

Moved: TypeAlias = Sequence[Difference] | None
"""What differs from a baseline, ``None`` without one."""


def write_reports(files: Mapping[str, OutputFile], outcome: Outcome, moved: Moved) -> None:
    """Write the results to the files of these options."""
    for option, file in files.items():
        content = WRITERS[option](outcome, moved).encode()
        file.write(lambda stream, content=content: stream.write(content))


def as_json(outcome: Outcome, moved: Moved) -> str:
    """Return all reports, as they were sent but for the commands, the summary, and what differs from a baseline."""
    document: dict[str, Any] = {
        "reports": [report.document for report in outcome.reports],
        "unavailable": outcome.unavailable,
        "summary": None if outcome.summary is None else outcome.summary.document,
    }
    if moved is not None:
        document["against"] = [difference.document() for difference in moved]
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def as_junit(outcome: Outcome, moved: Moved) -> str:
    """Return all reports, and what differs from a baseline, as JUnit XML."""
    return junit(outcome.reports, outcome.unavailable, moved or ()).decode() + "\n"


def as_html(outcome: Outcome, moved: Moved) -> str:
    """Return all reports, and what differs from a baseline, as a page."""
    return page(outcome.reports, outcome.unavailable, moved, is_interrupted=outcome.is_interrupted)


def as_baseline(outcome: Outcome, _: Moved) -> str:
    """Return what the ops compute."""
    return json.dumps(baseline(outcome.reports), ensure_ascii=False) + "\n"


WRITERS: Mapping[str, Callable[[Outcome, Moved], str]] = {
    "--json": as_json,
    "--junit": as_junit,
    "--html": as_html,
    "--save": as_baseline,
}
