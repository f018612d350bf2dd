"""An author's folder, elsewhere, whose path has a space."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import ROOT
from tests.patience import PATIENCE_S

RIGHT, WRONG = "3 * x * x * dy", "3.3 * x * x * dy"


class Ran(NamedTuple):
    """What a command printed, and how it ended."""

    code: int
    out: str
    error: str


def pullback(folder: Path, *arguments: str, executable: str = sys.executable, **variables: str) -> Ran:
    """Run the command line in a folder."""
    # Not the current folder, which is not this repository.
    paths = {"PYTHONPATH": str(ROOT)} if executable == sys.executable else {}
    done = subprocess.run(
        [executable, "-P", "-m", *arguments],
        cwd=folder,
        env={**os.environ, **paths, "COLUMNS": "200", **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """A folder with ``my_ops/cube.py``, which is right, and ``my_ops/bad.py``, whose gradient is 10 % too large."""
    folder = tmp_path_factory.mktemp("an author's folder")
    assert pullback(folder, "pullback", "new", "cube").code == 0
    page = (folder / "my_ops" / "cube.py").read_text()
    assert page.count(RIGHT) == 1
    (folder / "my_ops" / "bad.py").write_text(page.replace(RIGHT, WRONG).replace('"cube"', '"bad"'))
    return folder


@pytest.fixture(scope="session")
def here(folder) -> Callable[..., Ran]:
    """Run the command line in the author's folder."""
    return lambda *arguments, **variables: pullback(folder, *arguments, **variables)


@pytest.fixture
def graphs(folder, tmp_path) -> Path:
    """A folder with the page ``cube.py``, and two graphs of it and an op of Pullback, one of them wrong."""
    (tmp_path / "cube.py").write_text((folder / "my_ops" / "cube.py").read_text())
    nodes = [{"name": "c", "op": "cube", "inputs": ["x"]}, {"name": "s", "op": "square", "inputs": ["c"]}]
    examples = [{"name": "e", "inputs": {"x": [1.0, -0.5]}}]
    document = {"inputs": ["x"], "nodes": nodes, "outputs": {"y": "s"}, "examples": examples}
    (tmp_path / "sixth.graph.json").write_text(json.dumps(document))
    (tmp_path / "lost.graph.json").write_text(json.dumps({**document, "outputs": {"y": "t"}}))
    return tmp_path
