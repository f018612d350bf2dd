"""Checkouts: this one, and those of other versions in ``build/against``, each with its own environment."""

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks.commit import ROOT, described, git
from benchmarks.processes import environment

FOLDER = ROOT / "build" / "against"
# Environments differ between versions, so each version's own Makefile makes its own.
TARGETS = (".venv/.installed-cpu", "native")
# What make passes to the makes below it: its options and its variables.
OF_MAKE = ("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL")


class Checkout(NamedTuple):
    """A version of the service: its folder, its Python, and its commit in words."""

    root: Path
    python: Path
    commit: str


def here() -> Checkout:
    """Return this checkout, with its changes."""
    return Checkout(ROOT, Path(sys.executable), described())


def of(revision: str) -> Checkout:
    """Return the checkout of a revision; make it if it is missing. Raises ``SystemExit`` if that fails."""
    try:
        commit = git("rev-parse", "--verify", f"{revision}^{{commit}}")
    except subprocess.CalledProcessError:
        raise SystemExit(f"Expected REV to be a commit, a tag or a branch, got {revision!r}.") from None
    root = FOLDER / commit[:12]
    if not (root / "Makefile").exists():
        git("worktree", "prune")
        git("worktree", "add", "--detach", "--force", str(root), commit)
    variables = {name: value for name, value in environment().items() if name not in OF_MAKE}
    for target in TARGETS:
        if subprocess.run(["make", "-C", str(root), target], env=variables, check=False).returncode:
            raise SystemExit(f"`make {target}` failed in {root.relative_to(ROOT)}: see above.")
    return Checkout(root, root / ".venv" / "bin" / "python", described(root))
