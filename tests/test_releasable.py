"""What makes a commit no release: its version, its figures, its last release check."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.releasable import CHECKED, main, reasons

PASSED = {"step": "rows", "result": "passed", "details": ""}


class Clone:
    """A repository with a release in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "--quiet")
        for path, text in {
            "pullback/__init__.py": '"""The client."""\n\n__version__ = "1.2.0"\n',
            "CITATION.cff": "version: 1.2.0\n",
            "Dockerfile": "ARG VERSION=1.2.0\nARG VERSION=1.2.0\n",
            "CHANGELOG.md": "## [Unreleased]\n\n## [1.2.0] - 2026-11-27\n",
            "app/main.py": "1\n",
            "tests/x.py": "1\n",
            ".gitignore": "build/\n",
        }.items():
            self.write(path, text)
        measured = self.commit()
        self.write("docs/performance.md", f"Requests per second, at commit {measured[:7]} of 2026-11-27:\n")
        checked = self.commit()
        self.write(CHECKED, json.dumps({"commit": checked, "changes": False, "results": [PASSED]}))
        self.release()

    def git(self, *arguments: str) -> str:
        command = ["git", "-C", self.root, "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def commit(self) -> str:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "Change")
        return self.git("rev-parse", "HEAD")

    def release(self) -> None:
        self.commit()
        self.git("tag", "--force", "v1.2.0")

    def edit(self, path: str, old: str, new: str) -> None:
        text = (self.root / path).read_text()
        assert old in text
        self.write(path, text.replace(old, new))

    def check(self, **changes: Any) -> None:
        self.write(CHECKED, json.dumps({**json.loads((self.root / CHECKED).read_text()), **changes}))


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def test_a_release_has_nothing_against_it(clone: Clone, capsys: pytest.CaptureFixture[str]) -> None:
    assert (list(reasons(clone.root)), main(clone.root), capsys.readouterr().err) == ([], 0, "")
    # What is written after the check and the measurement.
    clone.edit("pullback/__init__.py", "1.2.0", "1.3.0")
    clone.edit("Dockerfile", "1.2.0", "1.3.0")
    clone.edit("CITATION.cff", "1.2.0", "1.3.0")
    clone.write("CHANGELOG.md", "## [1.3.0] - 2026-11-28\n")
    clone.write("benchmarks/results/serving.md", "new\n")
    clone.commit()
    clone.git("tag", "v1.3.0")
    assert list(reasons(clone.root)) == []


@pytest.mark.parametrize(
    ("path", "old", "new", "reason"),
    [
        ("pullback/__init__.py", "1.2.0", "1.2.1", "expected the tag v1.2.1 at this commit, got v1.2.0"),
        ("pullback/__init__.py", "1.2.0", "1.3.0.dev0", "has the version 1.3.0.dev0, which is in the making"),
        ("CITATION.cff", "1.2.0", "1.2.1", "CITATION.cff: expected the version 1.2.0, got 1.2.1"),
        ("Dockerfile", "1.2.0\nARG", "1.1.0\nARG", "Dockerfile: expected the version 1.2.0, got 1.1.0"),
        ("CHANGELOG.md", " - 2026-11-27", "", "CHANGELOG.md: expected a heading ## [1.2.0] with the date"),
        ("app/main.py", "1", "2", "since when app/main.py changed: measure again"),
        ("pullback/__init__.py", "client", "client!", "since when pullback/__init__.py changed: measure again"),
        ("tests/x.py", "1", "2", "since when tests/x.py changed: run make release-check"),
        ("docs/performance.md", "27:", "27, with uncommitted changes:", "with uncommitted changes"),
        ("docs/performance.md", "commit ", "commit f00", "since when it is not known what changed (fatal: "),
    ],
)
def test_each_difference_is_a_reason(clone: Clone, path: str, old: str, new: str, reason: str) -> None:
    clone.edit(path, old, new)
    clone.release()
    found = list(reasons(clone.root))
    assert any(reason in each for each in found), found
    assert main(clone.root) == 1


def test_a_commit_without_its_tag_is_no_release(clone: Clone) -> None:
    clone.git("tag", "--delete", "v1.2.0")
    assert list(reasons(clone.root)) == ["expected the tag v1.2.0 at this commit, got none"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"changes": True}, "the last release check had uncommitted changes"),
        (
            {"results": [PASSED, {"step": "docs", "result": "failed", "details": "see docs.log"}]},
            "docs failed, see docs",
        ),
        ({"results": [{"step": "docs", "result": "not run", "details": "ended early"}]}, "docs not run, ended early"),
        ({"results": [{"step": "docker", "result": "skipped", "details": "there is none"}]}, ""),
    ],
)
def test_a_release_check_must_be_whole_and_green(clone: Clone, changes: dict[str, Any], reason: str) -> None:
    clone.check(**changes)
    found = list(reasons(clone.root))
    assert [reason in each for each in found] == [True] * bool(reason)


def test_without_a_release_check_there_is_no_release(clone: Clone) -> None:
    (clone.root / CHECKED).unlink()
    assert list(reasons(clone.root)) == ["no release check has run here: run make release-check"]
