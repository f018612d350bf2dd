"""``pullback graph``: documents are posted from files, and graphs drawn."""

import json
from pathlib import Path

import pytest

RESIDUAL = Path(__file__).parents[2] / "docs/examples/residual.graph.json"


def test_a_document_is_posted_and_drawn(ask) -> None:
    out = ask("graph", "post", str(RESIDUAL)).out
    name = out.partition(":")[0]
    assert name.startswith("graph.")
    assert "composition" in out
    assert "source" not in out
    lines = [line.split() for line in ask("graph", "show", name).out.splitlines()]
    assert ["u", "an", "input", "linear,", "square"] in lines
    assert ["half", "multiply(a=square,", "b=0.5)", "left"] in lines
    assert ["r", "subtract(a=left,", "b=f)", "squares,", "output", "r"] in lines
    assert json.loads(ask("graph", "show", name, "--json").out)["nodes"] == json.loads(RESIDUAL.read_text())["nodes"]


def test_the_document_on_the_page_is_that_of_the_file() -> None:
    page = (RESIDUAL.parents[1] / "graphs.md").read_text()
    assert RESIDUAL.read_text() in page


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("post", "nothing.json"), "expected a file with JSON"),
        (("post", "pyproject.toml"), "expected a file with JSON"),
        (("show", "graph.x"), "path.name"),
        (("show", f"graph.{'0' * 32}"), "post its document again"),
    ],
)
def test_mistakes_are_one_line(ask, args: tuple[str, ...], said: str) -> None:
    result = ask("graph", *args)
    assert result.code == 2
    assert said in result.err
    assert len(result.err.splitlines()) == 1
