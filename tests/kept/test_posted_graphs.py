"""The store of posted graphs: shared by files, bounded, and trusting no file."""

import contextlib
import errno
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.errors import NotFound, Overloaded
from app.graphs.document import GraphDocument
from app.kept.graphs import GraphFolder, GraphStore
from tests.graphs.compositions import find
from tests.patience import PATIENCE_S, PAUSE_S


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


def test_a_process_keeps_the_graphs_that_were_used_last(tmp_path: Path) -> None:
    one = GraphStore(find, GraphFolder(tmp_path, 4), kept=2)
    first, second = (one.add(document(number), "")[0] for number in (1, 2))
    assert one.op(first.name) is first
    third, _ = one.add(document(3), "")
    assert [one.has(op) for op in (first, second, third)] == [True, False, True]


def test_all_files_together_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = list[int]()
    for number in range(1, 7):
        store(tmp_path, kept=100).add(document(number), "")
        sizes.append(sum(path.stat().st_size for path in tmp_path.iterdir()))
        # Room for three files, all of one size, and a half.
        monkeypatch.setattr("app.kept.graphs.MAX_BYTES", sizes[0] * 7 // 2)
    assert [size // sizes[0] for size in sizes] == [1, 2, 3, 3, 3, 3]


def is_kept(graphs: GraphStore, name: str) -> bool:
    """Return whether a store has a graph."""
    try:
        graphs.op(name)
    except NotFound:
        return False
    return True


def test_a_graph_that_was_evicted_by_another_process_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.kept.memory.NOTED_S", -1.0)
    one = store(tmp_path)
    name = one.add(document(1), "")[0].name
    (tmp_path / f"{name.removeprefix('graph.')}.json").unlink()
    until = time.monotonic() + PATIENCE_S
    while one.is_kept(name):  # the first use looks for the file, on another thread
        assert time.monotonic() < until
        time.sleep(PAUSE_S)
    with pytest.raises(NotFound, match="post its document again"):
        one.op(name)
    assert one.add(document(1), "")[1]
    assert is_kept(store(tmp_path), name)


def test_a_slow_file_system_does_not_hold_the_use_of_a_graph(tmp_path: Path) -> None:
    entered, opened = threading.Event(), threading.Event()

    class Slow(GraphFolder):
        def read(self, name: str) -> tuple[GraphDocument, str] | None:
            if name == other:
                entered.set()
                opened.wait(PATIENCE_S)
            return super().read(name)

    other = store(tmp_path).add(document(2), "")[0].name
    one = GraphStore(find, Slow(tmp_path, 4), 4)
    name = one.add(document(1), "")[0].name
    threading.Thread(target=one.op, args=[other], daemon=True).start()
    assert entered.wait(PATIENCE_S)
    assert one.known(name) is not None
    assert one.known(other) is None
    opened.set()


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


def path_of(folder: Path, name: str) -> Path:
    return folder / f"{name.removeprefix('graph.')}.json"


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    path.symlink_to("/dev/zero")


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 33)


@pytest.mark.parametrize("make", [pipe, link, large, Path.mkdir])
def test_only_small_regular_files_are_read(
    tmp_path: Path, make: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    strange = path_of(tmp_path, document(1).name)
    make(strange)
    one = store(tmp_path)
    assert not is_kept(one, document(1).name)
    assert [record.exc_info for record in caplog.records] == [None]
    assert is_kept(one, one.add(document(2), "")[0].name)
    if make is not Path.mkdir:
        one.add(document(1), "")
        assert is_kept(store(tmp_path), document(1).name)
        assert strange.lstat().st_size < 1 << 10


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """Inside this block, this process can write ten bytes to a file."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_leaves_no_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    one = store(tmp_path, kept=3)
    names = [one.add(document(number), "")[0].name for number in range(3)]
    for number in range(5):
        with full_disk(), pytest.raises(Overloaded, match="graphs cannot be kept: File too large"):
            one.add(document(10 + number), "")
    assert len(caplog.records) == 5
    assert not any(record.exc_info for record in caplog.records)
    assert {path.name for path in tmp_path.iterdir()} == {path_of(tmp_path, name).name for name in names}
    assert is_kept(one, one.add(document(10), "")[0].name)


def test_on_a_disk_full_of_graphs_a_new_one_replaces_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, write = store(tmp_path), Path.open

    def with_room_for_two(path: Path, mode: str = "r", *others: Any) -> Any:
        if mode == "xb" and len(list(tmp_path.glob("*.json"))) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, mode, *others)

    monkeypatch.setattr(Path, "open", with_room_for_two)
    names = [one.add(document(number), owner)[0].name for number, owner in enumerate(["alice", "alice", "bob"])]
    assert {path.name for path in tmp_path.iterdir()} == {path_of(tmp_path, name).name for name in names[1:]}


def test_what_a_dead_process_has_left_is_removed(tmp_path: Path) -> None:
    old, new = (tmp_path / f".{'0' * 32}.json.{digit * 8}" for digit in "ab")
    for path in (old, new):
        path.touch()
    os.utime(old, (0, 0))
    store(tmp_path).add(document(1), "")
    assert not old.exists()
    assert new.exists()  # another process writes it
