"""The commit that figures belong to."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Compared with until there is a tag.
WITHOUT_RELEASE = "3ebd8c0"


def git(*arguments: str, root: Path = ROOT) -> str:
    """Return what a command of git prints; raise ``subprocess.CalledProcessError`` if it fails."""
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def described(root: Path = ROOT) -> str:
    """Return the commit of a checkout with its date, and whether files differ from it."""
    try:
        commit = git("show", "--no-patch", "--format=%h of %cs", "HEAD", root=root)
        # A run writes its own results before the last of them asks.
        others = ".", ":!benchmarks/results", ":!docs/performance.md"
        changes = git("status", "--porcelain", "--untracked-files=no", "--", *others, root=root)
    except (OSError, subprocess.CalledProcessError):
        return "unknown: not a clone of the repository"
    return f"{commit}, with uncommitted changes" if changes else commit


def last_release() -> str:
    """Return the last tag, or what stands for a release as long as there is none."""
    try:
        return git("describe", "--tags", "--abbrev=0")
    except (OSError, subprocess.CalledProcessError):
        return WITHOUT_RELEASE
