"""The notebooks of docs/tutorials, which ``make tutorials`` runs, are as their programs and keep what these print."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

FOLDER = ROOT / "docs" / "tutorials"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py"))
CELL = re.compile(r"^# %%(.*)\n", re.MULTILINE)
MAX_BYTES = 200_000


def notebook(name: str) -> list[Any]:
    return json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]


def code(name: str) -> list[Any]:
    return [cell for cell in notebook(name) if cell["cell_type"] == "code"]


def as_program(cell: Any) -> tuple[str, str]:
    """Return a cell as the line that begins it in a program in the percent format, and the text below."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return " [markdown]", "\n".join(f"# {line}".rstrip() for line in source.splitlines())
    return "".join(f' {key}="{value}"' for key, value in cell["metadata"].items() if key == "alt"), source


def test_each_has_both_files_an_environment_and_a_place_in_the_navigation() -> None:
    assert [path.stem for path in sorted(FOLDER.glob("*.ipynb"))] == NAMES
    runner = (ROOT / "website" / "tutorials.py").read_text(encoding="utf-8")
    navigation = (ROOT / "website" / "mkdocs.yml").read_text(encoding="utf-8")
    assert sorted(re.findall(r'^    "(\w+)": ', runner, re.MULTILINE)) == NAMES
    assert sorted(re.findall(r"- tutorials/(\w+)\.md", navigation)) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_notebook_is_the_program(name: str) -> None:
    _, *parts = CELL.split((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
    program = list(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))
    assert [as_program(cell) for cell in notebook(name)] == program


@pytest.mark.parametrize("name", NAMES)
def test_the_notebook_keeps_the_outputs_of_one_run(name: str) -> None:
    cells = code(name)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} == {"stream", "display_data"}
    assert "\x1b" not in "".join("".join(output.get("text", ())) for output in outputs)
    assert Path(FOLDER, f"{name}.ipynb").stat().st_size < MAX_BYTES


@pytest.mark.parametrize("name", NAMES)
def test_every_picture_has_a_description(name: str) -> None:
    pictured = [cell for cell in code(name) if any("image/png" in o.get("data", {}) for o in cell["outputs"])]
    assert pictured
    assert all(len(cell["metadata"]["alt"]) > 60 for cell in pictured)
