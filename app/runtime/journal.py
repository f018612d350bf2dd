"""What this process evaluates, in memory that outlives it: if a kernel crashes the process, another reads where."""

import mmap
import os
from collections.abc import Sequence
from typing import Protocol

from ops import Array, Mode

SIZE = mmap.PAGESIZE
# The text ends with this byte.
END = b"\0"


class Describable(Protocol):
    """A program that can say what it runs on."""

    def describe(self, leaves: Sequence[Array]) -> str:
        """Return the names, dtypes and shapes of its leaves as text."""
        ...


class Journal:
    """The evaluation that this process makes, if a memory is set to keep it in."""

    def __init__(self) -> None:
        """Start without a memory."""
        self._memory: mmap.mmap | None = None

    def keep_in(self, descriptor: int) -> None:
        """Keep every further evaluation in the first ``SIZE`` bytes of a file, which must have that many."""
        self._memory = mmap.mmap(descriptor, SIZE)

    def clear(self) -> None:
        """Forget the last evaluation."""
        if self._memory is not None:
            self._memory[: len(END)] = END

    def note(self, program: Describable, mode: Mode, leaves: Sequence[Array]) -> None:
        """Keep the evaluation that begins; this takes a few microseconds, and nothing without a memory."""
        if self._memory is not None:
            text = f"mode {mode} at {program.describe(leaves)}".encode()[: SIZE - len(END)] + END
            self._memory[: len(text)] = text


JOURNAL = Journal()
"""The journal of this process."""


def clear(descriptor: int) -> None:
    """Empty a memory."""
    os.pwrite(descriptor, END, 0)


def read(descriptor: int) -> str:
    """Return the last evaluation that a process kept in a memory, "" if it kept none."""
    return os.pread(descriptor, SIZE, 0).partition(END)[0].decode(errors="replace")
