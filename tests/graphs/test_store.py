"""The store of posted graphs: shared by files, bounded, and trusting no file."""

import os
from pathlib import Path
from typing import Any

import pytest

from app.errors import NotFound
from app.graphs.document import GraphDocument
from app.graphs.folder import GraphFolder
from app.graphs.store import GraphStore
from tests.graphs.compositions import find


def document(number: int) -> GraphDocument:
    """Return one of many documents."""
    fields: dict[str, Any] = {
        "inputs": ["x"],
        "nodes": [{"name": "p", "op": "add", "inputs": {"a": "x", "b": {"constant": number}}}],
        "outputs": {"y": "p"},
    }
    return GraphDocument.of(fields)


def store(path: Path, kept: int = 4) -> GraphStore:
    """Return the store of another process with this folder."""
    return GraphStore(find, GraphFolder(path, kept), kept)


def test_another_process_has_the_same_graphs(tmp_path: Path) -> None:
    one, other = store(tmp_path), store(tmp_path)
    op, is_new = one.add(document(1), "")
    assert is_new
    assert other.op(op.name).name == op.name
    assert other.add(document(1), "") == (other.op(op.name), False)
    assert one.op(op.name).document.name == op.name


def test_the_least_used_of_the_owner_with_the_most_goes(tmp_path: Path) -> None:
    one = store(tmp_path)
    names = [one.add(document(number), owner)[0].name for number, owner in enumerate(["a", "b", "b", "b"])]
    for age, name in enumerate(names):
        path = tmp_path / f"{name.removeprefix('graph.')}.json"
        os.utime(path, ns=(0, 10**9 * (10 + age)))
    one.folder.use(names[1])
    new = one.add(document(9), "a")[0].name
    other = store(tmp_path)
    assert [name for name in (*names, new) if not is_kept(other, name)] == [names[2]]


def is_kept(graphs: GraphStore, name: str) -> bool:
    """Return whether a store has a graph."""
    try:
        graphs.op(name)
    except NotFound:
        return False
    return True


def test_a_graph_that_was_evicted_by_another_process_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.graphs.store.NOTED_S", -1.0)
    one = store(tmp_path)
    name = one.add(document(1), "")[0].name
    (tmp_path / f"{name.removeprefix('graph.')}.json").unlink()
    with pytest.raises(NotFound, match="post its document again"):
        one.op(name)


def test_a_file_with_another_document_does_not_count(tmp_path: Path) -> None:
    one = store(tmp_path)
    first, second = (one.add(document(number), "")[0].name for number in (1, 2))
    paths = [tmp_path / f"{name.removeprefix('graph.')}.json" for name in (first, second)]
    paths[0].write_bytes(paths[1].read_bytes())
    paths[1].write_bytes(b'""\n{"nodes": [')
    assert not is_kept(store(tmp_path), first)
    assert not is_kept(store(tmp_path), second)


@pytest.mark.parametrize("name", ["graph.../../etc/passwd", "graph.", "graph.ABC", f"graph.{'0' * 33}", "graph.%2e"])
def test_a_name_is_no_path(tmp_path: Path, name: str) -> None:
    with pytest.raises(NotFound):
        store(tmp_path).op(name)


def test_the_folder_of_a_process_goes_with_it() -> None:
    folder = GraphFolder(None, 4)
    GraphStore(find, folder).add(document(1), "")
    assert folder.path.is_dir()
    folder.close()
    assert not folder.path.exists()
