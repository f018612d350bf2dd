"""Which op a crash is blamed on, from the files that real threads have written."""

import contextlib
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from app.execution.quarantine import JOURNAL_SIZE, THREADS, CrashFolder, Death, Watch, death_of, suspects_of
from app.runtime.journal import SIZE, Journal
from app.runtime.refused import REFUSED
from tests.patience import PATIENCE_S


class Named:
    """A program of an op."""

    def __init__(self, name: str) -> None:
        self.op_name = name.encode()

    def describe(self, leaves: Sequence[np.ndarray]) -> str:
        raise AssertionError("expected only the name")


@contextlib.contextmanager
def written(*names: str) -> Iterator[tuple[bytes, list[int]]]:
    """Yield a journal, and the threads that compute these ops in it; the first is the loop. "-name" has ended."""
    journal, done, noted = Journal(), threading.Event(), threading.Barrier(len(names) + 1)
    with tempfile.TemporaryFile() as file:
        os.posix_fallocate(file.fileno(), 0, JOURNAL_SIZE)
        journal.keep_in(file.fileno(), THREADS, in_full=False)
        turns = [threading.Event() for _ in names]

        def compute(number: int) -> None:
            turns[number].wait(PATIENCE_S)
            journal.begin(Named(names[number].removeprefix("-")), "graph", ())
            if names[number].startswith("-"):
                journal.end()
            if number + 1 < len(names):
                turns[number + 1].set()
            noted.wait(PATIENCE_S)
            done.wait(PATIENCE_S)

        threads = [threading.Thread(target=compute, args=(number,)) for number in range(len(names))]
        for thread in threads:
            thread.start()
        turns[0].set()
        noted.wait(PATIENCE_S)
        try:
            yield os.pread(file.fileno(), JOURNAL_SIZE, 0), [thread.ident or 0 for thread in threads]
        finally:
            done.set()
            for thread in threads:
                thread.join(PATIENCE_S)


def death(names: Sequence[str], thread: int | None, frames: str = "", signal: str = "Aborted") -> Death:
    """Return the death of a process whose threads ran these ops; ``thread`` is the number of the one that died."""
    with written(*names) as (content, threads):
        text = f"Fatal Python error: {signal}\n\nThread 0x01 (most recent call first):\n  File x\n\n" if signal else ""
        if thread is not None:
            ident = threads[thread] if thread < len(threads) else 7
            text += f"Current thread 0x{ident:016x} (most recent call first):\n{frames}\n"
        return death_of("217-abc.process", content + text.encode())


PAGE = '  File "/ops/b.py", line 3 in f\n'


@pytest.mark.parametrize(
    ("names", "thread", "frames", "expected"),
    [
        (["a", "b"], 1, "", {"b"}),
        (["a", "b"], 0, "", {"a"}),
        # A thread that computed nothing: no op is to blame.
        (["a", "-b"], 1, "", set()),
        # A thread of TensorFlow: what the loop computes stays on it.
        (["a", "b"], None, "", {"b"}),
        (["a", "b"], 9, "", {"b"}),
        (["a", "-b"], None, "", set()),
        (["-a", "b", "c"], None, "", {"b", "c"}),
        (["-a", "b", "c"], 9, PAGE, {"b"}),
        (["-a", "c", "d"], 9, PAGE, {"c", "d"}),
    ],
)
def test_the_op_of_the_thread_that_died_is_to_blame(names, thread, frames, expected):
    found = death(names, thread, frames)
    assert (found.pid, found.signal) == (217, "SIGABRT")
    assert suspects_of(found) == expected


class Deaths(CrashFolder):
    """A folder with these deaths, one at each look."""

    def __init__(self, path: Path, *found: Death) -> None:
        super().__init__(path)
        self.left = list(found)

    def deaths(self) -> list[Death]:
        return [self.left.pop(0)] if self.left else []


@pytest.fixture(autouse=True)
def nothing_refused():
    yield
    REFUSED.clear()


def test_the_only_op_that_was_a_suspect_twice_is_refused(tmp_path):
    first, second = death(["-a", "b", "c"], None), death(["-a", "c", "d"], None)
    watch, now = Watch(Deaths(tmp_path / "1", first, second), 600.0, {}), time.time()
    watch.look(now)
    assert not REFUSED
    watch.look(now + 1)
    assert [*REFUSED] == ["c"]


@pytest.mark.parametrize("thread", [None, 1])
def test_a_process_that_was_killed_is_no_evidence(tmp_path, thread):
    watch = Watch(Deaths(tmp_path / "1", *[death(["-a", "b"], thread, signal="")] * 5), 600.0, {})
    for _ in range(5):
        watch.look(time.time())
    assert not REFUSED


def test_an_op_is_refused_for_a_while_whatever_the_clock_says(tmp_path):
    folder = CrashFolder(tmp_path / "1")
    watch, now = Watch(folder, 600.0, {}), time.time()
    folder.refuse("square", "it crashed")
    watch.look(now)
    assert REFUSED["square"].reason == "it crashed"
    os.utime(folder.file_of("square"), (now + 1e6, now + 1e6))
    watch.look(now + 1)
    assert REFUSED["square"].until <= now + 1 + 600
    os.utime(folder.file_of("square"), (now - 599, now - 599))
    watch.look(now)
    assert "square" in REFUSED
    watch.look(now + 2)
    assert "square" not in REFUSED
    assert not os.path.exists(folder.file_of("square"))


def test_a_crash_counts_although_the_disk_is_full(tmp_path):
    """The op is refused in this process."""
    folder = Deaths(tmp_path / "1", death(["-a", "b"], 1))
    (tmp_path / "1" / "b.crashed").mkdir()  # so that the file cannot be written, whoever runs the test
    watch, now = Watch(folder, 600.0, {}), time.time()
    watch.look(now)
    assert "b" in REFUSED
    watch.look(now + 601)
    assert "b" not in REFUSED


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * SIZE, os.urandom(2 * JOURNAL_SIZE), b"\0" * JOURNAL_SIZE + b"F" * 99]
)
def test_any_bytes_are_read(content):
    found = death_of("x", content)
    assert found.signal == ""
    assert suspects_of(found) == set()
