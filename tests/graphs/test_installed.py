"""Graphs that an operator installs as files: ops like any, or unavailable with the reason."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.autodiff.admission import admit
from app.graphs.installed import with_graphs
from app.processes.sources import Sources
from ops import Registry
from tests.ops.cases import REGISTRY, Case, answer

GOOD: dict[str, Any] = {
    "inputs": ["x"],
    "nodes": [
        {"name": "s", "op": "square", "inputs": {"x": "x"}},
        {"name": "l", "op": "log1pexp", "inputs": {"x": "s"}},
    ],
    "outputs": {"y": "l"},
    "examples": [{"name": "two", "inputs": {"x": [1.0, 2.0]}}],
}


def installed(folder: Path, **files: Any) -> Registry:
    """Return the registry with these documents, by the stems of their files."""
    for name, document in files.items():
        text = document if isinstance(document, str) else json.dumps(document)
        (folder / f"{name}.graph.json").write_text(text)
    return with_graphs(REGISTRY, [folder], admit)


def test_an_installed_graph_is_an_op(tmp_path: Path) -> None:
    again = {
        **GOOD,
        "nodes": [{"name": "n", "op": "curve.vjp", "inputs": {"x": "x", "dy": "x"}}],
        "outputs": {"y": "n"},
    }
    found = installed(tmp_path, curve=GOOD, slope=again)
    op = found.ops["curve"]
    assert (op.owner, op.examples[0].name, found.pages["curve"].name) == ("curve", "two", "curve.graph.json")
    assert list(found.ops) == sorted(found.ops)
    case = Case(op, op.examples[0])
    assert answer(case.point(), "vjp", {})["gradients/x"].shape == (2,)
    case = Case(found.ops["slope"], op.examples[0])
    assert answer(case.point(), "forward", {})["outputs/y"].shape == (2,)


@pytest.mark.parametrize(
    ("name", "document", "reason"),
    [
        ("square", GOOD, "another op has the name"),
        ("Curve", GOOD, "expected a name like"),
        ("graph", GOOD, "another op has the name"),
        ("curve", {**GOOD, "outputs": {"y": "z"}}, "outputs.y"),
        ("curve", "{", "JSON"),
        ("curve", {**GOOD, "examples": [{"name": "e", "inputs": {"x": "a"}}]}, "examples.0"),
    ],
)
def test_a_wrong_file_is_unavailable_with_its_reason(tmp_path: Path, name: str, document: Any, reason: str) -> None:
    found = installed(tmp_path, **{name: document})
    assert set(found.ops) == set(REGISTRY.ops)
    [lost] = found.unavailable
    assert reason in lost.reason
    assert f"correct {tmp_path.name}/{name}.graph.json" in lost.reason


def test_a_changed_graph_is_a_changed_file(tmp_path: Path) -> None:
    installed(tmp_path, curve=GOOD)
    before = Sources([tmp_path])
    installed(tmp_path, curve={**GOOD, "doc": "changed"})
    assert before.changed() == [str(tmp_path / "curve.graph.json")]


def test_a_folder_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    installed(tmp_path, curve=GOOD)
    found = with_graphs(REGISTRY, [tmp_path, tmp_path], admit)
    assert "curve" in found.ops
    assert found.unavailable == REGISTRY.unavailable
