"""The pages for authors: every field that exists is on them, and the files for continuous integration are whole."""

import dataclasses
import re
from pathlib import Path

import pytest

from ops import Claim, Example, Input, Op, Output
from pullback.cli.commands import app
from tests.conftest import ROOT

ADD_AN_OP, CI = ROOT / "docs" / "add-an-op.md", ROOT / "docs" / "ci.md"
YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("kind", [Op, Input, Output, Claim, Example], ids=lambda kind: kind.__name__)
def test_every_field_is_on_the_page(kind: type) -> None:
    text = ADD_AN_OP.read_text()
    names = [field.name for field in dataclasses.fields(kind)]
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


def test_the_files_for_continuous_integration_are_short() -> None:
    files = YAML.findall(CI.read_text())
    assert len(files) == 2
    assert all(len(file.splitlines()) < 15 for file in files)
    assert all("my_ops/" in file and "pullback[serve]" in file for file in files)


def test_only_the_page_of_the_installation_installs_by_name() -> None:
    """There is no package of that name on an index yet."""
    pages = [page for page in (ROOT / "docs").rglob("*.*") if page.suffix in {".md", ".py"}]
    assert [page.name for page in pages if 'pip install "pullback[' in page.read_text()] == ["install.md"]


def test_every_command_on_the_pages_exists() -> None:
    known = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    pages = [ADD_AN_OP, CI, ROOT / "docs" / "package.md", ROOT / "docs" / "add-a-native-op.md"]
    used = {
        name for page in map(Path, pages) for name in re.findall(r"(?:`|^)pullback ([a-z]+)\b", page.read_text(), re.M)
    }
    assert used - known - {"key"} == set()
    assert {"check", "serve", "new", "native", "watch"} <= used
