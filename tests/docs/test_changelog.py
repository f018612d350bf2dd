"""CHANGELOG.md: short, in order, and with a date for every version."""

import datetime
import re
from itertools import pairwise

from packaging.version import Version

from tests.docs.test_docs import LINK, has_target, text_of

PAGE = "CHANGELOG.md"
HEADING = re.compile(r"^## (.*)$", re.MULTILINE)
RELEASED = re.compile(r"\[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)")
# Bytes of the page, and lines of a version, of which the one that is in the making may have more.
MAX_BYTES, MAX_LINES, MAX_UNRELEASED = 20_000, 40, 45
KINDS = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def parts(text: str) -> dict[str, str]:
    _, *found = HEADING.split(text)
    return dict(zip(found[::2], found[1::2], strict=True))


def faults(text: str) -> list[str]:
    """Return what is wrong with the headings, lengths and links of a changelog."""
    unreleased, *versions = found = list(parts(text))
    matches = [RELEASED.fullmatch(heading) for heading in versions]
    faults = [] if unreleased == "[Unreleased]" else [f"expected ## [Unreleased] first, got ## {unreleased}"]
    faults += [
        f"expected ## [1.2.3] - 2026-01-31, got ## {heading}"
        for heading, match in zip(versions, matches, strict=True)
        if not match
    ]
    released = [(Version(match[1]), datetime.date.fromisoformat(match[2])) for match in matches if match]
    faults += [
        f"{newer[0]} of {newer[1]} does not follow {older[0]} of {older[1]}"
        for newer, older in pairwise(released)
        if not (newer[0] > older[0] and newer[1] >= older[1])
    ]
    for heading in found:
        limit = MAX_UNRELEASED if heading == "[Unreleased]" else MAX_LINES
        lines = len(parts(text)[heading].strip().splitlines())
        faults += [f"{heading} has {lines} lines, more than {limit}"] if lines > limit else []
        kinds = re.findall(r"^### (.*)$", parts(text)[heading], re.MULTILINE)
        if not (kinds and set(kinds) <= KINDS and len(set(kinds)) == len(kinds)):
            faults.append(f"{heading} has the headings {kinds}")
    faults += [
        f"{link} does not exist" for link in LINK.findall(text) if "://" not in link and not has_target(PAGE, link)
    ]
    # [1.2.3] is a link as soon as one version has a target.
    targets = set(re.findall(r"^\[([^\]]+)\]: \S+$", text, re.MULTILINE))
    names = {heading.partition("]")[0].removeprefix("[") for heading in found}
    return faults + [f"[{name}] has no link target" for name in sorted(names - targets) if targets & names]


def test_every_version_is_dated_in_order_and_short() -> None:
    text = text_of(PAGE)
    assert faults(text) == []
    assert len(text.encode()) < MAX_BYTES
    assert len(parts(text)) > 1


def test_faults_are_found() -> None:
    wrong = (
        "## [0.2.0] - 2026-02-01\n### Added\n## [0.3.0] - 2026-01-01\n### New\n## [0.1.0]\n### Fixed\n[no](no.md)\n"
        "[0.1.0]: https://example.org\n"
    )
    assert faults(wrong) == [
        "expected ## [Unreleased] first, got ## [0.2.0] - 2026-02-01",
        "expected ## [1.2.3] - 2026-01-31, got ## [0.1.0]",
        "[0.3.0] - 2026-01-01 has the headings ['New']",
        "no.md does not exist",
        "[0.2.0] has no link target",
        "[0.3.0] has no link target",
    ]
