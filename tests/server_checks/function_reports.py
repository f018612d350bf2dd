"""Reports on functions of this process, by their targets."""

import re
from pathlib import Path
from typing import Any

from pullback.gradcheck.events import TargetOptions, check_targets
from pullback.gradcheck.of.local import Given
from pullback.gradcheck.targets import server_target
from pullback.reports import Report, Start

ROOT = Path(__file__).parents[2]


def report(target: str, given: Given | None = None, **options: Any) -> Report:
    """Return the report on a function; raise ``AssertionError`` with the reason if it cannot be checked."""
    found = server_target(target)
    assert found is not None
    for event in check_targets([found], TargetOptions(given=given or Given(), **options)):
        assert not isinstance(event, Start) or not event.unavailable, event
        if isinstance(event, Report):
            return event
    raise AssertionError(f"{target}: no report")


def verdicts_of_docs(other: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the verdicts of another checker and of this one, by function, in the table of the docs that names it."""
    text = (ROOT / "docs" / "check-functions.md").read_text()
    table = text.partition(f"| `{other}` |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(\w+)` \| .* \| (\w+) \| (\w+)\b.*\|$", table, re.MULTILINE)
    return {name: theirs for name, theirs, _ in rows}, {name: ours for name, _, ours in rows}


def failed(found: Report) -> dict[str, str]:
    """Return the checks that fail, with the sentences of their findings."""
    found_by = dict[str, list[str]]()
    for check in found.checks:
        if check.verdict == "fail":
            found_by.setdefault(check.check, []).append(check.sentence)
    return {check: "; ".join(sentences) for check, sentences in found_by.items()}
