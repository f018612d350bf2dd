"""What ops print in the service, from Python and TensorFlow: it goes to the log by lines, at a bounded rate.

An op that prints in each call could fill a disk, and would block where nothing reads the log. What an op's own kernels
print does not pass through here: they write to the descriptor, which must stay that of the log. Through a pipe that a
thread of this process reads, the last words of a process that crashes would be lost.
"""

import io
import threading
import time

from app.telemetry.line_writer import LineWriter

RATE = 1 << 16
"""How many bytes of each of stdout and stderr are written in a second."""
# A longer line is written in parts.
MAX_LINE = 1 << 12
NOTICE = b"pullback: ops print more than %d KiB in a second: the rest of this second is left out" % (RATE >> 10)


class PrintedLines(io.TextIOBase):
    """A text file whose lines a ``LineWriter`` writes, at most ``RATE`` bytes in a second."""

    def __init__(self, writer: LineWriter) -> None:
        """Write through this writer."""
        self._writer, self._begun = writer, threading.local()
        self._second, self._room = 0, RATE

    def write(self, text: str, /) -> int:
        """Take some text; the line that it ends in waits for its end. Threads have lines of their own."""
        *lines, rest = (getattr(self._begun, "line", "") + text).split("\n")
        while len(rest) > MAX_LINE:
            lines.append(rest[:MAX_LINE])
            rest = rest[MAX_LINE:]
        self._begun.line = rest
        if lines:
            self._writer.write(self._within_rate(lines))
        return len(text)

    def _within_rate(self, lines: list[str]) -> list[bytes]:
        """Return the lines of this second that may be written, and the notice before the first one left out."""
        written: list[bytes] = []
        if (second := int(time.monotonic())) != self._second:
            self._second, self._room = second, RATE
        for line in lines:
            if self._room <= 0:
                break
            encoded = line.encode(errors="backslashreplace")
            self._room -= len(encoded) + 1
            written.append(encoded if self._room > 0 else NOTICE)
        return written

    def writable(self) -> bool:
        """Return true."""
        return True

    def fileno(self) -> int:
        """Return the descriptor that the lines are written to."""
        return self._writer.descriptor
