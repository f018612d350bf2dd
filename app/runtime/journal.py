"""What this process evaluates, in memory that outlives it: if a kernel crashes the process, another reads where."""

import mmap
import os
import struct
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

from ops import Array, Mode

SIZE = mmap.PAGESIZE
"""The size of the memory for the evaluation of one thread."""
# Each memory begins with these: whether the evaluation is in progress, and the identifier of the thread.
_HEAD = struct.Struct("<?Q")
# The text follows, and ends with this byte.
END = b"\0"
MOST = SIZE - _HEAD.size - len(END)


class Describable(Protocol):
    """A program that can say what it computes, and what it runs on."""

    @property
    def op_name(self) -> bytes:
        """The name of the registered op, or graph, whose program this is."""
        ...

    def describe(self, leaves: Sequence[Array]) -> str:
        """Return the names, dtypes and shapes of its leaves as text."""
        ...


class Noted(NamedTuple):
    """What a thread has kept: its identifier, whether the evaluation is in progress, and its text."""

    thread: int
    is_running: bool
    text: str


class _Thread(threading.local):
    """Where the memory of each thread begins, -1 before its first evaluation, and the last text in it."""

    at = -1
    text = b""


class Journal:
    """The evaluations that the threads of this process make, if a memory is set to keep them in."""

    def __init__(self) -> None:
        """Start without a memory."""
        self._memory: mmap.mmap | None = None
        self._is_full, self._threads, self._taken = True, 1, 0
        self._thread, self._lock = _Thread(), threading.Lock()

    def keep_in(self, descriptor: int, threads: int = 1, *, in_full: bool = True) -> None:
        """Keep every further evaluation in a file, which must have ``threads * SIZE`` bytes.

        The last of so many memories is that of all further threads. Of an evaluation, its mode and leaves are kept
        ``in_full``, which takes a few microseconds, or the name of the op, which takes no time that a request notices.
        """
        self._is_full, self._threads, self._taken, self._thread = in_full, threads, 0, _Thread()
        self._memory = mmap.mmap(descriptor, threads * SIZE)

    def leave(self) -> None:
        """Keep nothing any more."""
        self._memory = None

    def clear(self) -> None:
        """Forget the last evaluation of the first thread."""
        if self._memory is not None:
            self._memory[_HEAD.size : _HEAD.size + len(END)] = END
            self._thread.text = b""

    def begin(self, program: Describable, mode: Mode, leaves: Sequence[Array]) -> None:
        """Keep the evaluation that begins on this thread."""
        if (memory := self._memory) is not None:
            thread, text = self._thread, program.op_name
            if self._is_full:
                text = f"mode {mode} at {program.describe(leaves)}".encode()
            at = thread.at
            if at < 0:
                at = self.take()
            # Most evaluations of the service have the text of the one before.
            if text is not thread.text:
                thread.text, start, kept = text, at + _HEAD.size, text[:MOST] + END
                memory[start : start + len(kept)] = kept
            memory[at] = 1

    def end(self) -> None:
        """Note that the evaluation of this thread has ended."""
        if (memory := self._memory) is not None and (at := self._thread.at) >= 0:
            memory[at] = 0

    @contextmanager
    def running(self, program: Describable, mode: Mode, leaves: Sequence[Array]) -> Generator[None]:
        """Keep the evaluation inside this block, which may be a part of another one of its program."""
        memory, at = self._memory, self._thread.at
        is_part = memory is not None and at >= 0 and bool(memory[at])
        self.begin(program, mode, leaves)
        try:
            yield
        finally:
            if not is_part:
                self.end()

    def take(self) -> int:
        """Take the first memory that is free for this thread; return where it begins."""
        with self._lock:
            at = self._thread.at = min(self._taken, self._threads - 1) * SIZE
            self._taken += 1
        if self._memory is not None:
            self._memory[at : at + _HEAD.size] = _HEAD.pack(False, threading.get_ident())
        return at


JOURNAL = Journal()
"""The journal of this process."""


def clear(descriptor: int) -> None:
    """Empty the memory of one thread."""
    os.pwrite(descriptor, END, _HEAD.size)


def note(descriptor: int, text: str) -> None:
    """Keep a text in the memory of one thread, in place of an evaluation."""
    os.pwrite(descriptor, text.encode()[:MOST] + END, _HEAD.size)


def read(descriptor: int) -> str:
    """Return the last evaluation that a process kept in the memory of one thread, "" if it kept none."""
    return noted(os.pread(descriptor, SIZE, 0).ljust(SIZE, END)).text


def noted(memory: bytes) -> Noted:
    """Return what ``SIZE`` bytes hold, whoever wrote them."""
    is_running, thread = _HEAD.unpack_from(memory)
    return Noted(thread, is_running, memory[_HEAD.size :].partition(END)[0].decode(errors="replace"))
