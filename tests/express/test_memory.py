"""What the express way keeps is bounded, and its timer leaves active connections alone."""

import asyncio
import random
import socket
import time
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from app.express.allowance import AT_MOST_S, SHARE, Allowance
from app.express.frames import ListFrame
from app.express.heads import FRAMES, Head, cut_off, read_head
from app.express.memory import FAILURES, FRAME_BYTES, HEADS, SEEN, SIGHTS, Memory
from app.http.connection import Connection

HEAD = b"POST /v1/ops/x/vjp HTTP/1.1\r\nx: %d\r\ncontent-length: \r\n\r\n"
MANY = 5_000


def frame(number: int, size: int = 0) -> ListFrame:
    """Return a frame of a body with this number, which keeps a constant of ``size`` bytes."""
    response = SimpleNamespace(head=(b"",) * 4, texts=(b"",), holes=())
    fields: dict[str, Any] = {
        "call": None,
        "size": 1,
        "response": response,
        "counters": None,
        "parse_counters": None,
        "text": b"%d" % number,
        "shapes": ((1,),),
        "leaves": (np.zeros(size, np.uint8),),
        "low": -1.0,
        "high": 1.0,
    }
    return ListFrame(**fields)


def test_sights_are_bounded():
    memory = Memory()
    for number in range(MANY):
        for _ in range(SEEN - 1):
            assert not memory.is_familiar(HEAD % number)
        assert memory.is_familiar(HEAD % number)
    assert len(vars(memory)["_seen"]) == SIGHTS


def test_heads_are_bounded():
    memory = Memory()
    for number in range(3 * HEADS):
        key = HEAD % number
        assert memory.find(key) is None
        memory.add(key, read_head(key))
        assert memory.knows(key)
    assert len(vars(memory)["_heads"]) == HEADS
    assert memory.find(HEAD % (3 * HEADS - 1)) is not None
    assert memory.find(HEAD % 0) is None


def test_a_head_in_use_is_kept():
    memory = Memory()
    for number in range(2 * HEADS):
        memory.add(HEAD % number, read_head(HEAD % number))
        assert memory.find(HEAD % 0) is not None


def test_frames_are_bounded():
    head = Head("/x", b"")
    for number in range(MANY):
        head.add(b"%d" % number, frame(number))
    assert len(head.lists) + len(head.ranges) <= 2 * FRAMES


def test_the_bytes_of_frames_are_bounded():
    memory, size = Memory(), FRAME_BYTES // 64
    heads = [Head("/x", b"") for _ in range(128)]
    for number, head in enumerate(heads):
        memory.add(HEAD % number, head)
        memory.learn(head, b"", frame(number, size))
    kept = [head for head in vars(memory)["_heads"].values() if head is not None]
    assert sum(head.weight for head in kept) <= FRAME_BYTES
    assert kept


def test_the_weight_of_all_heads_is_kept_up_to_date():
    memory, rng = Memory(), random.Random(2)
    for number in range(2_000):
        key = HEAD % rng.randrange(2 * HEADS)
        head = memory.find(key)
        if head is None:
            memory.add(key, read_head(key))
        else:
            memory.learn(head, b"%d" % number, frame(number, rng.randrange(FRAME_BYTES // 100)))
        kept = [head for head in vars(memory)["_heads"].values() if head is not None]
        assert vars(memory)["_weight"] == sum(head.weight for head in kept) <= FRAME_BYTES


def test_a_head_with_frames_does_not_rest():
    memory = Memory()
    for number, weight in enumerate((0, 1)):
        key = HEAD % number
        memory.add(key, read_head(key))
        head = memory.find(key)
        assert head is not None
        if weight:
            memory.learn(head, b"", frame(1))
        head.failures = FAILURES
        assert (memory.find(key) is None) == (not weight)


def test_lessons_take_a_share_of_the_time(monkeypatch):
    """However many requests could be learned, lessons take no more than their share, and a lesson at a time."""
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    allowance, spent, began = Allowance(), 0.0, now
    for _ in range(20_000):
        now += 0.001
        if allowance.is_left:
            allowance.spend(0.02)
            spent += 0.02
    assert AT_MOST_S + SHARE * (now - began) - 0.03 < spent < AT_MOST_S + SHARE * (now - began) + 0.03
    now += 3600
    assert allowance.is_left
    allowance.spend(AT_MOST_S)
    assert not allowance.is_left


@pytest.mark.parametrize(
    ("data", "is_whole"),
    [
        (HEAD.replace(b"length: ", b"length: 2") % 1 + b"{}", True),
        (HEAD.replace(b"length: ", b"length: 2") % 1 + b"{}x", False),
        (HEAD.replace(b"length: ", b"length: 02") % 1 + b"{}", False),
        (HEAD.replace(b"length: ", b"length: 0") % 1, False),
        (HEAD.replace(b"length: ", b"length: 140000") % 1 + b"{}", False),
        (HEAD.replace(b"length: ", b"length: 999999") % 1 + b"{}", False),
        (b"GET" + HEAD[4:] % 1, False),
        (b"POST / HTTP/1.1\r\n\r\n\r\ncontent-length: 2\r\n\r\n{}", False),
        (b"POST / HTTP/1.1\r\ncontent-length: 2\r\n", False),
        (b"POST / HTTP/1.1\r\nx: " + b"y" * 2048 + b"\r\ncontent-length: 2\r\n\r\n{}", False),
    ],
)
def test_a_cut(data, is_whole):
    cut = cut_off(data)
    assert (cut is not None) == is_whole
    if cut is not None:
        key, start, end = cut
        assert (key, data[start:end]) == (HEAD % 1, b"{}")


@pytest.mark.slow
def test_an_active_connection_outlives_its_timer():
    """The timer starts once; it closes the connection only when no request has been answered for that long."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        closed = loop.create_future()
        quiet, other = socket.socketpair()
        transport = SimpleNamespace(
            is_closing=closed.done,
            get_extra_info=lambda name: quiet,
            close=lambda: closed.done() or closed.set_result(loop.time()),
        )
        written: list[bytes] = []
        fields: dict[str, Any] = {
            "loop": loop,
            "transport": transport,
            "timeout_keep_alive": 0.4,
            "timeout_keep_alive_task": None,
            "link": SimpleNamespace(is_lost=False),
            "is_with_express": True,
            "_coalescing": SimpleNamespace(write_response=written.append),
        }
        connection = cast(Connection, object.__new__(Connection))
        for name, value in fields.items():
            setattr(connection, name, value)
        last = loop.time()
        for _ in range(12):
            connection.answer(b"x")
            assert not connection.is_with_express
            last = loop.time()
            await asyncio.sleep(0.1)
        assert not closed.done()
        connection.is_with_express = True
        await asyncio.sleep(1.0)
        assert not closed.done()
        connection.is_with_express = False
        assert await asyncio.wait_for(closed, 20) >= last + 0.4
        assert written == [b"x"] * 12
        quiet.close()
        other.close()

    asyncio.run(run())
