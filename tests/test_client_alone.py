"""What ``make test-client-alone`` runs, in an environment with requirements/client.txt alone, is there."""

import ast
import importlib.metadata
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.client_alone import files
from tests.conftest import ROOT

LOCKED = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements" / "client.txt").read_text("utf-8"), re.MULTILINE))
THERE = {"pullback", *sys.stdlib_module_names}
THERE |= {
    module
    for module, names in importlib.metadata.packages_distributions().items()
    if {name.lower().replace("_", "-") for name in names} & LOCKED
}
OURS = ("app", "tests")


def imported(path: Path) -> Iterator[str]:
    """Yield what a module imports when it is loaded."""
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{name.name}" for name in node.names))


def needed(path: Path, seen: set[Path]) -> set[str]:
    """Return the packages of others that a module needs, and the modules of ours that it imports for the first time."""
    seen.add(path)
    packages = set[str]()
    for module in imported(path):
        first = module.split(".")[0]
        if first not in OURS:
            packages.add(first)
            continue
        place = ROOT.joinpath(*module.split("."))
        for own in (place.with_suffix(".py"), *(folder / "__init__.py" for folder in (place, *place.parents))):
            if own.is_relative_to(ROOT) and own.exists() and own not in seen:
                packages |= needed(own, seen)
    return packages


def test_its_files_need_only_what_the_client_has() -> None:
    seen = set[Path]()
    assert {path.name: packages for path in files() if (packages := needed(path, seen) - THERE)} == {}
