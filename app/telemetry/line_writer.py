"""Lines for stdout and stderr, written on a separate thread, so that logging never blocks.

A pipe that nobody reads is full after 64 KiB, and the next write to it blocks its thread: on the event loop, that would
stop the service.
"""

import contextlib
import os
import select
import threading
import time
from collections import deque
from collections.abc import Iterable

# The most bytes of lines that may wait to be written; further ones are dropped and counted.
BUFFER = 1 << 20
# How long the thread collects lines after each write. A write per line would take longer than the rest of the logging.
PAUSE_S = 0.02
# How long the end of the process waits for the last lines.
FLUSH_S = 1.0
# Several processes may write to one pipe. Up to this size, the system writes the bytes of a call in one piece.
WHOLE = select.PIPE_BUF
DROPPED = b"pullback: %d lines of the log were dropped: nothing read it in time, or it could not be written\n"


class LineWriter:
    """The lines that this process writes to a descriptor.

    ``dropped`` counts those that the buffer could not hold, and those that could not be written, as on a full disk.
    """

    def __init__(self, descriptor: int) -> None:
        """Start without lines; the thread starts with the first one."""
        self.descriptor, self.dropped = descriptor, 0
        self._start()
        os.register_at_fork(after_in_child=self._start)

    def write(self, lines: Iterable[bytes]) -> None:
        """Write lines, without their ends, soon; drop those that the buffer cannot hold."""
        with self._lock:
            for line in lines:
                if self._size + len(line) >= BUFFER:
                    self.dropped += 1
                else:
                    self._lines.append(line + b"\n")
                    self._size += len(line) + 1
            if self._is_awake or not self._lines:
                return
            self._is_awake = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="log", daemon=True)
                self._thread.start()
        self._wake.set()

    def flush(self) -> None:
        """Wait until all lines are written, at most ``FLUSH_S``."""
        until = time.monotonic() + FLUSH_S
        while self._size and time.monotonic() < until:
            time.sleep(PAUSE_S / 4)

    def _start(self) -> None:
        """Start without lines and without a thread, in a forked process too."""
        self._lock, self._wake = threading.Lock(), threading.Event()
        self._lines, self._size, self._is_awake = deque[bytes](), 0, False
        self._thread: threading.Thread | None = None

    def _run(self) -> None:
        reported, is_cut = self.dropped, False
        while True:
            self._wake.wait()
            self._wake.clear()
            while chunk := self._next():
                # The rest of a line that was cut is lost; the next one must not continue it.
                data = b"\n" + chunk if is_cut else chunk
                written = write_all(self.descriptor, data)
                is_cut = is_cut if not written else data[written - 1 : written] != b"\n"
                if written == len(data) and (lost := self.dropped - reported):
                    notice = DROPPED % lost
                    sent = write_all(self.descriptor, notice)
                    reported += lost if sent == len(notice) else 0
                    is_cut = 0 < sent < len(notice)
                with self._lock:
                    self.dropped += min(data[written:].count(b"\n"), chunk.count(b"\n"))
                    self._size -= len(chunk)
            time.sleep(PAUSE_S)

    def _next(self) -> bytes:
        """Return as many lines as one call writes in one piece, at least one; empty if none wait."""
        with self._lock:
            lines, size = list[bytes](), 0
            while self._lines and (not lines or size + len(self._lines[0]) <= WHOLE):
                lines.append(self._lines.popleft())
                size += len(lines[-1])
            self._is_awake = bool(lines)
        return b"".join(lines)


def write_all(descriptor: int, data: bytes) -> int:
    """Write the data; return how many bytes that was, fewer if the descriptor is closed, or its disk is full."""
    written = 0
    with contextlib.suppress(OSError):
        while written < len(data):
            try:
                written += os.write(descriptor, data[written:])
            except BlockingIOError:
                select.select([], [descriptor], [])
    return written


STDOUT, STDERR = LineWriter(1), LineWriter(2)
"""The output of this process, and its log."""


def print_errors(*lines: str) -> None:
    """Print lines on stderr; it may be closed or full."""
    STDERR.write(f"pullback: {line}".encode(errors="backslashreplace") for line in lines)
    STDERR.flush()
