"""The files that ``pullback check`` writes, by option: --json, --junit and --html."""

import json
from collections.abc import Callable, Mapping

from pullback.cli.follow import Outcome
from pullback.cli.junit import junit
from pullback.cli.output_files import OutputFile
from pullback.html.page import page


def write_reports(files: Mapping[str, OutputFile], outcome: Outcome) -> None:
    """Write the results to the files of these options."""
    for option, file in files.items():
        content = WRITERS[option](outcome).encode()
        file.write(lambda stream, content=content: stream.write(content))


def as_json(outcome: Outcome) -> str:
    """Return all reports, as they were sent but for the commands, and the summary."""
    document = {
        "reports": [report.document for report in outcome.reports],
        "unavailable": outcome.unavailable,
        "summary": None if outcome.summary is None else outcome.summary.document,
    }
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def as_junit(outcome: Outcome) -> str:
    """Return all reports as JUnit XML."""
    return junit(outcome.reports, outcome.unavailable, outcome.inconclusive).decode() + "\n"


def as_html(outcome: Outcome) -> str:
    """Return all reports as a page."""
    return page(outcome.reports, outcome.unavailable, is_interrupted=outcome.is_interrupted)


WRITERS: Mapping[str, Callable[[Outcome], str]] = {"--json": as_json, "--junit": as_junit, "--html": as_html}
