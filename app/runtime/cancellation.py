"""Cancellation: another thread can stop the work on this one, between one kernel and the next."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Self, TypeAlias

# Private, for there is no public way to cancel an eager call or a graph function between two of its kernels.
from tensorflow.python.eager import cancellation

Checkpoint: TypeAlias = Callable[[], None]
"""Called between chunks of long work; raises when the caller no longer waits for the result."""


class Interruptible:
    """A block of work on this thread that another thread can cancel, between one kernel and the next.

    A kernel, a trace or an XLA program that runs goes on to its end. A v1 session stops by itself at ``deadline``, a
    time of ``time.monotonic``. Functions stop only after ``install``.
    """

    def __init__(self, deadline: float) -> None:
        """Prepare to be cancelled."""
        self.deadline = deadline
        self._manager = cancellation.CancellationManager()
        self._cancelled = False

    @property
    def manager(self) -> cancellation.CancellationManager:
        """What cancels the next function: a new manager if TensorFlow cancelled the last one, after a failure."""
        if self._manager.is_cancelled and not self._cancelled:
            self._manager = cancellation.CancellationManager()
            if self._cancelled:  # meanwhile, on the other thread
                self._manager.start_cancel()
        return self._manager

    def __enter__(self) -> Self:
        """Make this thread's work cancellable."""
        _thread.block = self
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        """Leave the block."""
        _thread.block = None

    def cancel(self) -> None:
        """Cancel what runs, and all that starts later in the block."""
        self._cancelled = True
        self._manager.start_cancel()


class _Thread(threading.local):
    """The block of work that a thread is in."""

    block: Interruptible | None = None


_thread = _Thread()


def install() -> None:
    """Make TensorFlow ask each thread for its cancellation manager; call it once, when the service starts.

    TensorFlow keeps one manager for all threads: the work of one slot would be cancelled with that of the other.
    """
    cancellation.context = _manager


def remaining_ms() -> int:
    """Return the milliseconds to this thread's deadline, at least 1; 0, no limit to a session, without a deadline."""
    return 0 if _thread.block is None else max(1, int(1000 * (_thread.block.deadline - time.monotonic())))


@contextmanager
def uninterrupted() -> Generator[None]:
    """Let nothing cancel this block: a trace is kept, and must not fail because one caller's deadline passed."""
    block, _thread.block = _thread.block, None
    try:
        yield
    finally:
        _thread.block = block


def _manager() -> cancellation.CancellationManager | None:
    return _thread.block and _thread.block.manager
