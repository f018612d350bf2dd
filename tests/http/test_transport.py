"""Heads are sent together with their bodies; nothing is lost, reordered, or delayed by more than one loop turn."""

import asyncio

import pytest

from app.http.transport import JOINED, HeadCoalescing

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


class Wire:
    """A transport that records its writes."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data) -> None:
        assert not self.closed
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.closed = True


def writes(*pieces: bytes | memoryview, turns: int = 0, close: bool = False) -> list[bytes]:
    """Return the resulting writes after some turns of the loop."""

    async def run() -> list[bytes]:
        wire = Wire()
        corked = HeadCoalescing(wire, asyncio.get_running_loop())
        for piece in pieces:
            corked.write(piece)
        if close:
            corked.close()
        for _ in range(turns):
            await asyncio.sleep(0)
        assert wire.closed == close
        return list(wire.written)  # from here on: the loop may go on

    return asyncio.run(run())


@pytest.mark.parametrize(
    "body", [b"body", memoryview(b"body"), bytearray(b"body")], ids=lambda body: type(body).__name__
)
def test_a_head_and_its_body_are_one_write(body):
    assert writes(HEAD, body) == [HEAD + b"body"]


def test_a_lone_head_is_sent_after_one_turn():
    assert writes(HEAD) == []
    assert writes(HEAD, turns=1) == [HEAD]


def test_long_data_is_written_separately():
    long = bytes(JOINED + 1)
    assert writes(HEAD, long) == [HEAD, long]


def test_writes_keep_their_order():
    pieces = [HEAD, b"one", b"two", HEAD, HEAD, b"three", HEAD]
    assert b"".join(writes(*pieces, turns=2)) == b"".join(pieces)


def test_a_waiting_head_is_sent_before_close():
    assert writes(HEAD, close=True, turns=2) == [HEAD]


def test_other_attributes_come_from_the_transport():
    async def run() -> bool:
        return HeadCoalescing(Wire(), asyncio.get_running_loop()).is_closing()

    assert asyncio.run(run()) is False
