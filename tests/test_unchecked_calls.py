"""Scripts that neither pyright nor a usual run sees call our functions as they are defined."""

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

FOLDERS = ("benchmarks", "deploy", "tests/fleet", "tests/ray_serve")
SCRIPTS = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
OURS = ("app", "ops", "pullback")


def calls(source: str) -> Iterator[tuple[ast.Call, Callable[..., Any]]]:
    """Yield the calls of functions and classes that a module imports from ours."""
    tree, ours = ast.parse(source), dict[str, Any]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in OURS:
            try:
                module = importlib.import_module(node.module)
            except ModuleNotFoundError as error:
                if str(error.name).split(".")[0] in OURS:
                    raise
                continue  # it needs a framework that is not here
            for name in node.names:
                if not hasattr(module, name.name):
                    importlib.import_module(f"{node.module}.{name.name}")
                ours[name.asname or name.name] = getattr(module, name.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and callable(ours.get(node.func.id)):
            yield node, ours[node.func.id]


def misfits(source: str) -> Iterator[str]:
    """Yield the calls whose arguments do not fit the function; those with ``*`` or ``**`` are not looked at."""
    for call, function in calls(source):
        names = [keyword.arg for keyword in call.keywords]
        if None in names or any(isinstance(argument, ast.Starred) for argument in call.args):
            continue
        try:
            inspect.signature(function).bind(*call.args, **dict.fromkeys(names))
        except TypeError as error:
            yield f"line {call.lineno}: {ast.unparse(call)}: {error}"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_script_calls_our_functions_as_they_are_defined(path: Path) -> None:
    assert not list(misfits(path.read_text()))


def test_a_misfit_is_found() -> None:
    head = "from app.runtime.cores import share_cores\n"
    assert list(misfits(f"{head}share_cores(1, 2)\nshare_cores(*both)")) == []
    assert len(list(misfits(f"{head}share_cores(1)\nshare_cores(1, 2, 3)\nshare_cores(1, count=2)"))) == 3
