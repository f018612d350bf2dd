"""What ops print, in the service and in copies of its process."""

import io
import os
import socket
import sys
import threading
import time
from contextlib import ExitStack, suppress
from multiprocessing.connection import wait
from types import TracebackType
from typing import Self

from app.telemetry.line_writer import STDERR, LineWriter, write_all

HEAD, TAIL = 60 << 10, 4 << 10
"""How many bytes are written of the beginning and of the end of what each op prints in a check."""
ITSELF = "a process of checks"
LEFT_OUT = b"pullback: %b printed %d bytes more here, which are left out\n"
# As much as a pipe holds.
CHUNK, MAX_SUBJECT = 1 << 16, 1 << 10
# How long a process waits until what it has printed is written.
WAIT_S = 0.5
RATE = 1 << 16
"""How many bytes of each of stdout and stderr are written in a second."""
# A longer line is written in parts.
MAX_LINE = 1 << 12
NOTICE = b"pullback: ops print more than %d KiB in a second: the rest of this second is left out" % (RATE >> 10)


# An op may print gigabytes, which would fill a disk. Its process writes into a pipe, and a thread of the parent reads
# it: what a process prints before it crashes is not lost.
class Prints:
    """The stdout and stderr of a copy of this process: fork inside this block, and ``enter`` in the copy."""

    def __init__(self) -> None:
        """Start to read. Raises ``OSError`` and ``RuntimeError`` where no descriptor or thread is left."""
        with ExitStack() as unless_started:
            self._reading, self._writing = os.pipe()
            for descriptor in (self._reading, self._writing):
                unless_started.callback(os.close, descriptor)
            os.set_blocking(self._reading, False)
            self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            unless_started.enter_context(self._ours)
            unless_started.enter_context(self._theirs)
            self._thread = threading.Thread(target=self._forward, name="printed", daemon=True)
            self._thread.start()
            unless_started.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close what the copy writes to; without a copy, the thread ends."""
        os.close(self._writing)
        self._theirs.close()

    def enter(self) -> None:
        """Write what this process prints into the pipe, from now on."""
        for number in (1, 2):
            os.dup2(self._writing, number)
        os.close(self._writing)
        os.close(self._reading)
        self._ours.close()
        # By lines: what is in a buffer when the process crashes is lost.
        sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115 - for the whole process
        SUBJECT.tell(self._theirs)

    def wait(self) -> None:
        """Wait, for a short time, until what the copy has printed is written; it must have ended."""
        self._thread.join(WAIT_S)

    def _forward(self) -> None:
        """Write what the copy prints, until it has ended."""
        section, sources = _Section(ITSELF.encode()), [self._reading, self._ours]
        subject: bytes | None = None
        while subject != b"":
            ready, subject = wait(sources), None
            if self._ours in ready:
                with suppress(ConnectionError):
                    subject = self._ours.recv(MAX_SUBJECT)
                subject = subject or b""
            # After the subject has come: what the process printed before that is in the pipe.
            with suppress(BlockingIOError):
                if chunk := os.read(self._reading, CHUNK):
                    section.add(chunk)
                elif self._reading in sources:
                    sources.remove(self._reading)  # the op has closed its stdout and stderr
            if subject is not None:
                section.end()
                section = _Section(subject)
                with suppress(OSError):
                    self._ours.send(b"\n")
        os.close(self._reading)
        self._ours.close()


class _Section:
    """What a process prints about one subject."""

    def __init__(self, subject: bytes) -> None:
        self._subject, self._room, self._tail = subject, HEAD, b""
        self._left_out, self._begins_line = 0, True

    def add(self, data: bytes) -> None:
        """Write the beginning of the section, and keep its end."""
        if head := data[: self._room]:
            self._room -= len(head)
            self._begins_line = head.endswith(b"\n")
            write_all(2, head)
        if rest := data[len(head) :]:
            rest = self._tail + rest
            self._tail = rest[-TAIL:]
            self._left_out += len(rest) - len(self._tail)

    def end(self) -> None:
        """Write the end of the section, from the first whole line on."""
        tail = self._tail
        if self._left_out:
            start = tail.find(b"\n", 0, -1) + 1
            notice = LEFT_OUT % (self._subject, self._left_out + start)
            tail = (b"" if self._begins_line else b"\n") + notice + tail[start:]
        if tail:
            write_all(2, tail if tail.endswith(b"\n") else tail + b"\n")


class _Subject:
    """What this process is about to print about, if it is a copy that has entered ``Prints``."""

    def __init__(self) -> None:
        self._parent: socket.socket | None = None
        self._name = ITSELF

    def tell(self, parent: socket.socket) -> None:
        """Tell this parent."""
        self._parent, self._name = parent, ITSELF
        parent.settimeout(WAIT_S)

    def begin(self, name: str = ITSELF) -> None:
        """Count anew what is printed from now on; wait, for a short time, until what was printed is written."""
        if self._parent is None or name == self._name:
            return
        self._name = name
        STDERR.flush()
        for file in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the code of an op may have replaced it
                file.flush()
        with suppress(OSError):
            self._parent.send(name.encode()[:MAX_SUBJECT])
            self._parent.recv(1)


SUBJECT = _Subject()
"""The subject of this process."""


# An op that prints in each call could fill a disk, and would block where nothing reads the log. What an op's own
# kernels print does not pass through here: they write to the descriptor, which must stay that of the log. Through a
# pipe that a thread of this process reads, the last words of a process that crashes would be lost.
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
