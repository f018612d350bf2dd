"""What ops print in the service: at most so much in a second, and never blocking."""

import io
import os
import threading
import time
from pathlib import Path

import httpx
import pytest

from app.telemetry import printed
from app.telemetry.line_writer import LineWriter
from app.telemetry.printed import NOTICE, RATE, PrintedLines
from tests.conftest import Service
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

CHATTY = """
import sys

import tensorflow as tf
from ops import Example, Input, Op, Output, custom_gradient


def forward(x):
    if tf.executing_eagerly():
        print("first words", file=sys.stderr)
        tf.print("first tensor", tf.ones(2), output_stream=sys.stdout)
        for _ in range(1024):
            print("w" * 4096, file=sys.stderr)
            tf.print("t" * 4096)
            x = tf.compat.v1.Print(x, [x], "k" * 4096)
        x = tf.raw_ops.Print(input=x, data=[x, x], message="last tensors ")
    return x * 1.0


OP = Op(
    name="chatty",
    summary="x, and much that it prints",
    doc="Prints 12 MiB in each eager call.",
    function=custom_gradient(forward, lambda x, dy: dy),
    inputs=(Input("x"),),
    outputs=(Output("y"),),
    source="none",
    batching="elementwise",
    examples=(Example("one", {"x": [1.0]}),),
)
"""


def text_printed(tmp_path: Path, *texts: str) -> bytes:
    with (tmp_path / "log").open("w+b") as log:
        writer = LineWriter(log.fileno())
        file = PrintedLines(writer)
        for text in texts:
            print(text, file=file, end="")
        writer.flush()
        log.seek(0)
        return log.read()


def test_lines_are_written_whole(tmp_path: Path) -> None:
    assert text_printed(tmp_path, "a", "b\nc", "\n", "\ud800\n") == b"ab\nc\n\\ud800\n"


def test_a_second_has_so_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printed.time, "monotonic", lambda: 7.5)
    log = text_printed(tmp_path, *["x" * 999 + "\n"] * 100)
    assert RATE - 1000 <= len(log) <= RATE + len(NOTICE)
    assert log.endswith(NOTICE + b"\n")
    assert log.count(NOTICE) == 1


def test_a_line_without_end_is_written_in_parts(tmp_path: Path) -> None:
    assert text_printed(tmp_path, "x" * 10_000).count(b"\n") == 2


def test_threads_do_not_mix_their_lines(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w+b") as log:
        writer = LineWriter(log.fileno())
        file = PrintedLines(writer)

        def work(letter: str) -> None:
            for _ in range(200):
                print(letter, letter, letter, file=file)

        threads = [threading.Thread(target=work, args=(letter,)) for letter in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writer.flush()
        log.seek(0)
        assert set(log.read().splitlines()) == {b"a a a", b"b b b", b"c c c", b"d d d"}


def test_the_descriptor_is_that_of_the_log() -> None:
    assert io.TextIOBase.isatty(PrintedLines(LineWriter(2))) == os.isatty(2)
    assert PrintedLines(LineWriter(2)).fileno() == 2


def test_a_service_whose_op_prints_without_end(tmp_path: Path) -> None:
    (tmp_path / "chatty.py").write_text(CHATTY)
    began = time.monotonic()
    with (tmp_path / "log").open("w+b") as log:
        service = Service.launched(log, OPS_PATH=str(tmp_path))
        try:
            service.wait_until_ready()
            for _ in range(3):
                document = {"inputs": {"x": [1.0]}, "mode": "eager"}
                httpx.post(f"{service.url}/v1/ops/chatty/forward", json=document, timeout=PATIENCE_S).raise_for_status()
        finally:
            service.close()
        text = (tmp_path / "log").read_bytes()
    assert b"first words\nfirst tensor [1 1]\n" in text
    assert NOTICE in text
    assert len(text) < (2 + time.monotonic() - began) * RATE
