"""Settings, pages, the client and the command line keep their names, and what is deprecated ends when it says."""

import json
import re
from pathlib import Path

import pytest
from packaging.version import Version

from tests.compatibility.promised import differences
from tests.compatibility.surface import surface
from tests.docs.test_changelog import RELEASED
from tests.docs.test_docs import rows, text_of

SURFACES = Path(__file__).parent / "surfaces"
COMPATIBILITY = "docs/compatibility.md"
NOTHING = "(nothing)"


@pytest.mark.parametrize("path", sorted(SURFACES.glob("*.json")), ids=lambda path: path.stem)
def test_no_name_is_gone(path: Path) -> None:
    then, now = json.loads(path.read_text()), surface()
    assert differences(then, now, values=False) == []
    assert [
        f"{kind} {name}: {argument} is gone"
        for kind, names in then.items()
        for name, arguments in names.items()
        for argument in arguments
        if argument not in now[kind][name]
    ] == []


def faults(deprecated: list[list[str]], newest: Version) -> list[str]:
    """Return what is wrong with the table of what is deprecated: removals that are overdue or too early."""
    found: list[str] = []
    for name, since, removal, instead, _ in deprecated:
        first, last = Version(since), Version(removal)
        if last <= newest:
            found.append(f"{name} was to be removed in {removal}, and {newest} is released")
        if (first.major, first.minor + 1) > (last.major, last.minor) or (first.major and first.major == last.major):
            found.append(f"{name} is deprecated in {since}, too late for its removal in {removal}")
        if not instead:
            found.append(f"{name} has nothing in its place")
    return found


def test_nothing_deprecated_is_overdue() -> None:
    deprecated = [row for row in rows(COMPATIBILITY, "deprecated") if row[0] != NOTHING]
    newest = max(Version(version) for version, _ in RELEASED.findall(text_of("CHANGELOG.md")))
    assert faults(deprecated, newest) == []
    # Each is announced, and warns where it says.
    for name, since, *_, test in deprecated:
        assert name in text_of("CHANGELOG.md"), f"{name} is not in the changelog, deprecated in {since}"
        [path, function] = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", test)[0]
        assert f"def {function}(" in text_of(path)


@pytest.mark.parametrize(
    ("since", "removal", "count"),
    [("0.4.0", "0.6.0", 0), ("0.4.0", "0.5.0", 1), ("0.6.0", "0.6.0", 1), ("1.1.0", "1.2.0", 1), ("1.1.0", "2.0.0", 0)],
)
def test_overdue_and_sudden_removals_are_found(since: str, removal: str, count: int) -> None:
    assert len(faults([["`a`", since, removal, "`b`", ""]], Version("0.5.0"))) == count
