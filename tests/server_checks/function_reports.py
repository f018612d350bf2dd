"""Reports on functions of this process, by their targets."""

from typing import Any

from pullback.gradcheck.events import TargetOptions, check_targets
from pullback.gradcheck.of.local import Given
from pullback.gradcheck.targets import server_target
from pullback.reports import Report, Start


def report(target: str, given: Given | None = None, **options: Any) -> Report:
    """Return the report on a function; raise ``AssertionError`` with the reason if it cannot be checked."""
    found = server_target(target)
    assert found is not None
    for event in check_targets([found], TargetOptions(given=given or Given(), **options)):
        assert not isinstance(event, Start) or not event.unavailable, event
        if isinstance(event, Report):
            return event
    raise AssertionError(f"{target}: no report")


def failed(found: Report) -> dict[str, str]:
    """Return the checks that fail, with the sentence of one of their findings."""
    return {check.check: check.sentence for check in found.checks if check.verdict == "fail"}
