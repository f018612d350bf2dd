"""Cancellation: another thread can stop the work on this thread between two kernels."""

import math
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from types import TracebackType
from typing import Self, TypeAlias

# Private, because no public API cancels an eager call or a graph function between two of its kernels.
from tensorflow.python.eager import cancellation

from app.errors import too_late

Checkpoint: TypeAlias = Callable[[], None]
"""Called between chunks of long work; raises when the caller no longer waits for the result."""


class Interruptible:
    """A block of work on this thread that another thread can cancel between two kernels.

    A running kernel, trace or XLA program always completes. A v1 session stops by itself at ``deadline``, in seconds of
    ``time.monotonic``. Functions can be cancelled only after ``install``. ``is_uninterrupted`` while the thread is in
    ``uninterrupted``, and not so ``since`` a time of ``time.monotonic``.
    """

    def __init__(self, deadline: float) -> None:
        """Create the cancellation manager."""
        self.deadline, self.is_uninterrupted, self.since = deadline, False, -math.inf
        self._manager = cancellation.CancellationManager()
        self._cancelled = False

    @property
    def manager(self) -> cancellation.CancellationManager:
        """The cancellation manager of the next function: a new one if TensorFlow cancelled the last after a failure."""
        if self._manager.is_cancelled and not self._cancelled:
            self._manager = cancellation.CancellationManager()
            if self._cancelled:  # the other thread called cancel() meanwhile
                self._manager.start_cancel()
        return self._manager

    def __enter__(self) -> Self:
        """Make this the block of the current thread."""
        _thread.block = self
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        """Leave the block."""
        _thread.block = _Thread.block

    @property
    def is_over(self) -> bool:
        """Whether the block was cancelled, or its deadline has passed."""
        return self._cancelled or time.monotonic() > self.deadline

    def cancel(self) -> None:
        """Cancel the running work, and any that starts later in the block."""
        self._cancelled = True
        self._manager.start_cancel()


class _NotInterruptible:
    """The block of a thread outside any ``Interruptible``."""

    manager = None
    deadline, since = math.inf, -math.inf
    is_uninterrupted = is_over = False


Block: TypeAlias = Interruptible | _NotInterruptible
"""The work that a thread does."""


class _Thread(threading.local):
    """The current block of each thread."""

    block: Block = _NotInterruptible()


_thread = _Thread()


def install() -> None:
    """Make TensorFlow use the cancellation manager of each thread; call this once, when the service starts.

    TensorFlow has one manager for all threads, so cancelling the work of one queue would cancel that of the others. It
    looks up the manager before every function, so the lookup is a C callable without a Python frame.
    """
    cancellation.context = partial(attrgetter("block.manager"), _thread)


def current() -> Block:
    """Return the block of work that this thread does."""
    return _thread.block


def check() -> None:
    """Raise ``DeadlinePassed`` if this thread's block is over: where Python code builds what TensorFlow computes."""
    if _thread.block.is_over:
        raise too_late()


def remaining_ms() -> int:
    """Return the milliseconds to this thread's deadline, at least 1; 0 (no limit for a session) without a deadline."""
    deadline = _thread.block.deadline
    return 0 if deadline == math.inf else max(1, int(1000 * (deadline - time.monotonic())))


@contextmanager
def uninterrupted() -> Generator[None]:
    """Disable cancellation in this block: a kept trace must not fail because one caller's deadline passed."""
    block, _thread.block = _thread.block, _Thread.block
    block.is_uninterrupted = True
    try:
        yield
    finally:
        block.since, block.is_uninterrupted = time.monotonic(), False
        _thread.block = block
