"""Why a commit is no release, as far as this machine can tell: ``python -m tests.releasable``.

The version is in ``pullback/__init__.py``, not in a tag: an archive, a shallow clone and the build of an image have no
tags. So a release is a commit whose tag, files, figures and last release check agree.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHECKED = "build/release-check/results.json"
VERSION_LINE = r"^(__version__ = |ARG VERSION=|version: ).*$"
STATED: Mapping[str, str] = {
    "pullback/__init__.py": r'^__version__ = "(.*)"$',
    "CITATION.cff": r"^version: (.*)$",
    "Dockerfile": r"^ARG VERSION=(.*)$",
}
"""The files that state the version, and how."""
FIGURES = re.compile(r"\bcommit ([0-9a-f]{7,40})\b(.*)", re.IGNORECASE)
PAGES = ("README.md", "docs/*.md", "benchmarks/results/*.md")
MEASURED = ("app", "ops", "pullback", "requirements/cpu.txt")
"""What figures are of."""
WRITTEN = ("docs", "benchmarks/results", "README.md", "CHANGELOG.md", "CITATION.cff")
"""What is written after a release check: the tables of its benchmarks, and the version with its date."""


def main(root: Path = ROOT) -> int:
    """Print the reasons; return 1 if there are any."""
    found = [*reasons(root)]
    for reason in found:
        print(f"not a release: {reason}", file=sys.stderr)
    return int(bool(found))


def reasons(root: Path) -> Iterator[str]:
    """Yield why the commit of a clone is no release."""
    version = re.search(STATED["pullback/__init__.py"], (root / "pullback/__init__.py").read_text("utf-8"), re.M)
    yield from of_version(root, version[1] if version else "")
    yield from of_figures(root)
    yield from of_check(root)


def of_version(root: Path, version: str) -> Iterator[str]:
    """Yield where the version is not that of the tag."""
    if ".dev" in version:
        yield f"pullback/__init__.py has the version {version}, which is in the making"
    tags = git(root, "tag", "--points-at", "HEAD").split()
    if f"v{version}" not in tags:
        yield f"expected the tag v{version} at this commit, got {', '.join(tags) or 'none'}"
    for path, pattern in STATED.items():
        others = {*re.findall(pattern, (root / path).read_text("utf-8"), re.MULTILINE)} - {version}
        if others:
            yield f"{path}: expected the version {version}, got {', '.join(sorted(others))}"
    if not re.search(
        rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", (root / "CHANGELOG.md").read_text("utf-8"), re.M
    ):
        yield f"CHANGELOG.md: expected a heading ## [{version}] with the date"


def of_figures(root: Path) -> Iterator[str]:
    """Yield the pages with figures of other code. A page cannot name its own commit, so the code must be the same."""
    for path in sorted(path for pattern in PAGES for path in root.glob(pattern)):
        for commit, rest in dict(FIGURES.findall(path.read_text("utf-8"))).items():
            what = f"{path.relative_to(root)} has figures of commit {commit}"
            if "uncommitted" in rest:
                yield f"{what} with uncommitted changes"
            elif changed := differs(root, commit, *MEASURED):
                yield f"{what}, since when {changed}: measure again"


def of_check(root: Path) -> Iterator[str]:
    """Yield what is wrong with the last release check."""
    again = "run make release-check"
    try:
        found = json.loads((root / CHECKED).read_text("utf-8"))
    except OSError:
        yield f"no release check has run here: {again}"
        return
    if found["changes"]:
        yield f"the last release check had uncommitted changes: {again}"
    if changed := differs(root, found["commit"], ".", *(f":!{path}" for path in WRITTEN)):
        yield f"the last release check was of commit {found['commit'][:12]}, since when {changed}: {again}"
    for step in found["results"]:
        if step["result"] not in ("passed", "skipped"):
            yield f"the last release check: {step['step']} {step['result']}, {step['details']}"


def differs(root: Path, commit: str, *paths: str) -> str:
    """Return what has changed since a commit in these paths, but for lines with a version; "" if nothing has."""
    try:
        text = git(
            root,
            "diff",
            "--unified=0",
            "--no-color",
            f"--ignore-matching-lines={VERSION_LINE}",
            commit,
            "HEAD",
            "--",
            *paths,
        )
    except subprocess.CalledProcessError as error:
        return f"it is not known what changed ({error.stderr.strip().splitlines()[0]})"
    changed = re.findall(r"^diff --git a/.* b/(.*)$", text, re.MULTILINE)
    more = f" and {len(changed) - 1} more files" if len(changed) > 1 else ""
    return f"{changed[0]}{more} changed" if changed else ""


def git(root: Path, *arguments: str) -> str:
    """Return what git prints; raises ``CalledProcessError``."""
    return subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
