"""The site of the documentation, which ``make docs`` builds, has every page."""

import re

from tests.conftest import ROOT


def test_every_page_is_in_the_navigation_once() -> None:
    text = (ROOT / "website" / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"(?:- |: )([\w-]+\.md)$", text, re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in (ROOT / "docs").glob("*.md"))
