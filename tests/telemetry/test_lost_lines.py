"""Lines that cannot be written, as on a full disk, are counted, and a later line says how many they are."""

import contextlib
import os
import resource
import socket
from collections.abc import Generator
from pathlib import Path

import pytest

from app.telemetry.line_writer import LineWriter

LINE = b"%06d " + b"x" * 92
COUNT = 100


@contextlib.contextmanager
def file_limit(size: int) -> Generator[None]:
    """Let no file of this process be longer than this, as if its disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_every_line_on_a_full_device_is_counted() -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    writer = LineWriter(descriptor)
    for number in range(COUNT):
        writer.write([LINE % number])
    writer.flush()
    assert writer.dropped == COUNT
    os.close(descriptor)


@pytest.mark.parametrize("size", [1000, 1017, 4096, 10_001])
def test_a_file_that_can_grow_again(tmp_path: Path, size: int) -> None:
    """A line that was cut is lost too; no line continues it."""
    path = tmp_path / "log"
    with path.open("wb", buffering=0) as file:
        writer = LineWriter(file.fileno())
        with file_limit(size):
            for number in range(COUNT):
                writer.write([LINE % number])
            writer.flush()
        lost = writer.dropped
        assert lost == max(COUNT - size // 100, 0)
        writer.write([b"later"])
        writer.flush()
    lines = path.read_bytes().splitlines()
    whole = [line for line in lines if len(line) == 100 - 1 or line == b"later"]
    assert len(whole) == COUNT - lost + 1
    notices = [line for line in lines if line.startswith(b"pullback: ")]
    assert [int(line.split()[1]) for line in notices] == ([lost] if lost else [])
    assert writer.dropped == lost


def test_a_descriptor_that_does_not_block_loses_nothing() -> None:
    reader, other = socket.socketpair()
    with reader, other:
        other.setblocking(False)
        other.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        writer = LineWriter(other.fileno())
        writer.write(LINE % number for number in range(COUNT))
        found = b""
        while found.count(b"\n") < COUNT:
            found += reader.recv(1 << 16)
        assert found == b"".join(LINE % number + b"\n" for number in range(COUNT))
        assert writer.dropped == 0
