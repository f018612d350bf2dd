"""The log: a line never waits for its reader, and a reader who comes late learns how many lines are missing."""

import json
import logging
import os
import threading
from typing import Any

import pytest

from app.telemetry import line_writer
from app.telemetry.line_writer import LineWriter
from app.telemetry.log import MAX_TEXT, JsonFormatter, TextFormatter
from tests.conftest import Service
from tests.patience import PATIENCE_S

LINE = b"%06d " + b"x" * 200
MANY = 3 * line_writer.BUFFER // len(LINE)


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as reader:
        yield reader, writing
        os.close(writing)


def read_lines(reader: Any, until: bytes) -> list[bytes]:
    """Return the lines up to the one that begins like this."""
    lines = list[bytes]()
    for line in reader:
        lines.append(line)
        if line.startswith(until):
            return lines
    raise AssertionError(lines[-1:])


def test_lines_of_several_threads_arrive_whole_and_in_order(pipe: Any):
    reader, writing = pipe
    writer = LineWriter(writing)

    def write(letter: bytes) -> None:
        for i in range(500):
            writer.write([b"%c %06d %s" % (letter, i, letter * (i % 97))])

    threads = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    lines = [reader.readline() for _ in range(1500)]
    for thread in threads:
        thread.join(PATIENCE_S)
    for letter in (b"a", b"b", b"c"):
        expected = [b"%c %06d %s\n" % (letter, i, letter * (i % 97)) for i in range(500)]
        assert [line for line in lines if line.startswith(letter)] == expected
    assert writer.dropped == 0


def test_lines_that_nobody_reads_are_dropped_and_counted(pipe: Any):
    reader, writing = pipe
    writer = LineWriter(writing)
    for i in range(MANY):
        writer.write([LINE % i])
    assert 0 < writer.dropped < MANY
    found = read_lines(reader, b"pullback: ")
    *kept, last = found
    assert kept == [LINE % i + b"\n" for i in range(len(kept))]
    count = int(last.split()[1])
    assert 0 < count <= writer.dropped
    writer.write([b"end"])
    rest = read_lines(reader, b"end")
    counts = [count, *(int(line.split()[1]) for line in rest if line.startswith(b"pullback: "))]
    numbered = [line for line in (*found, *rest) if line[:1].isdigit()]
    assert sum(counts) == writer.dropped == MANY - len(numbered)


def test_a_flush_waits_for_the_lines_but_not_for_a_reader(pipe: Any, monkeypatch: Any):
    monkeypatch.setattr(line_writer, "FLUSH_S", 0.2)
    reader, writing = pipe
    writer = LineWriter(writing)
    writer.write([b"one"])
    writer.flush()
    assert os.read(reader.fileno(), 100) == b"one\n"
    for i in range(MANY):
        writer.write([LINE % i])
    writer.flush()


def test_a_closed_descriptor_is_not_an_error():
    reading, writing = os.pipe()
    os.close(reading)
    writer = LineWriter(writing)
    writer.write([b"one"])
    writer.flush()
    os.close(writing)
    assert writer.dropped == 1


@pytest.mark.parametrize("form", [TextFormatter(), JsonFormatter()])
@pytest.mark.parametrize("message", ["a" * 50_000_000, "half a letter: \ud800"])
def test_any_record_is_a_bounded_line_of_unicode(form: logging.Formatter, message: str):
    try:
        raise RuntimeError(message)
    except RuntimeError as error:
        record = logging.LogRecord("pullback", logging.WARNING, "", 0, "%s", (message,), (type(error), error, None))
    line = form.format(record)
    assert len(line.encode()) < 3 * MAX_TEXT
    if isinstance(form, JsonFormatter):
        assert json.loads(line)["message"][:10] == message[:10]


@pytest.mark.slow
def test_an_unread_log_stops_nothing(pipe: Any):
    """Each request writes a line; a pipe takes 64 KiB of them."""
    _, writing = pipe
    with os.fdopen(os.dup(writing), "wb") as log:
        service = Service.forked(log)
    try:
        with service.wait_until_ready().client() as client:
            for _ in range(400):
                assert client.get("/" + "x" * 290).status_code == 404
            assert client.get("/health/live").status_code == 200
        service.process.terminate()
        assert service.wait() == 0
    finally:
        service.close()
