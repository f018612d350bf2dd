"""What the fast path keeps is bounded, and its timer leaves active connections alone."""

import asyncio
import random
import socket
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from app.fast_path.cache import (
    COUNTED,
    FAILURES,
    HEADS,
    MAX_BODY,
    MAX_HEAD,
    SEEN,
    TEMPLATE_BYTES,
    Head,
    HeadKey,
    TemplateCache,
    Unknown,
    size_of,
)
from app.fast_path.templates import RunReader, Template
from app.http.connection import Connection
from app.tensors.dtypes import DTYPES

MANY = 5_000


def key(number: int, *more: tuple[bytes, bytes]) -> HeadKey:
    return b"/v1/ops/x/vjp", "1.1", (b"x", b"%d" % number), *more


def added(cache: TemplateCache, number: int) -> Head:
    """Return the head with this number, which the cache keeps."""
    for _ in range(2 * SEEN):
        if (head := cache.head(key(number))) is not None:
            return head
    raise AssertionError


def body(number: int) -> bytes:
    return b'{"x": [%d.5], "n": "%d"}' % (number, number)


def template(number: int, size: int = 0) -> Template:
    """Return a template of a body with this number, which keeps a constant of ``size`` bytes."""
    response: Any = SimpleNamespace(head=(b"",) * 4, layout=SimpleNamespace(constants=(b"",)))
    leaves = slice(0, 1), np.zeros(size, np.uint8)
    reader = RunReader(b'{"x": [\0], "n": "%d"}' % number, ((1,),), leaves, (DTYPES["float64"],) * 2)
    nothing: Any = SimpleNamespace(is_gone=None)
    return Template(reader, nothing, 1, ((),), response, nothing, nothing, "/x", "/x")


def test_counts_are_bounded():
    cache = TemplateCache()
    for number in range(MANY):
        for _ in range(SEEN - 1):
            assert not cache.is_due(number)
        assert cache.is_due(number)
    assert len(vars(cache)["_counts"]) == COUNTED


def test_heads_are_bounded_and_take_their_templates_with_them():
    cache = TemplateCache()
    for number in range(3 * HEADS):
        cache.store(added(cache, number), body(number), template(number))
    assert len(cache.heads) == HEADS
    assert cache.weight == HEADS * template(100).weight
    assert cache.head(key(3 * HEADS - 1)) is not None
    assert cache.head(key(0)) is None


def test_a_head_in_use_is_kept():
    cache = TemplateCache()
    used = added(cache, 0)
    for number in range(1, 2 * HEADS):
        added(cache, number)
        assert cache.head(key(0)) is used


def test_nothing_is_stored_for_a_head_that_is_gone():
    cache, gone = TemplateCache(), Head(0)
    cache.store(gone, body(1), template(1))
    assert cache.weight == 0
    assert isinstance(cache.find(gone, body(1)), Unknown)


def test_the_least_recently_used_templates_make_room():
    cache, size = TemplateCache(), TEMPLATE_BYTES // 64
    head, other = added(cache, 0), added(cache, 1)
    cache.store(head, body(0), template(0, size))
    for number in range(1, 200):
        assert cache.head(key(number % 2)) is not None
        cache.store((head, other)[number % 2], body(number), template(number, size))
        assert cache.weight <= TEMPLATE_BYTES
        assert not isinstance(cache.find(head, body(0)), Unknown)
    heads = [(number, (head, other)[number % 2]) for number in range(200)]
    kept = [number for number, each in heads if not isinstance(cache.find(each, body(number)), Unknown)]
    assert len(kept) > 48
    assert kept == [0, *range(201 - len(kept), 200)]
    assert cache.weight == sum(template(number, size).weight for number in kept)


def test_many_shapes_of_one_head_are_kept():
    cache = TemplateCache()
    head = added(cache, 0)
    for number in range(500):
        cache.store(head, body(number), template(number))
    assert not any(isinstance(cache.find(head, body(number)), Unknown) for number in range(500))


def test_the_weight_of_all_templates_is_kept_up_to_date():
    cache, rng = TemplateCache(), random.Random(2)
    for _ in range(2_000):
        number, size = rng.randrange(2 * HEADS), rng.randrange(TEMPLATE_BYTES // 100)
        if (head := cache.head(key(number))) is not None:
            cache.store(head, body(number), template(number, size))
        assert cache.weight == sum(head.weight for head in cache.heads.values()) <= TEMPLATE_BYTES


def test_a_head_with_templates_does_not_rest():
    cache = TemplateCache()
    for number, has_template in enumerate((False, True)):
        head = added(cache, number)
        if has_template:
            cache.store(head, body(1), template(1))
        head.failures = FAILURES
        assert (cache.head(key(number)) is None) == (not has_template)


def test_long_heads_are_not_kept():
    cache = TemplateCache()
    for length, is_kept in ((MAX_HEAD - 100, True), (MAX_HEAD, False)):
        found = [cache.head(key(1, (b"y", b"y" * length))) for _ in range(8)]
        assert any(head is not None for head in found) == is_kept


@pytest.mark.parametrize(
    ("length", "size"),
    [
        (b"2", 2),
        (b"02", 2),
        (b"0", 0),
        (b"", 0),
        (b"-2", 0),
        (b"%d" % MAX_BODY, MAX_BODY),
        (b"%d" % (MAX_BODY + 1), 0),
        (b"9" * 30, 0),
    ],
)
def test_the_size_of_a_body(length: bytes, size: int):
    assert size_of({b"content-length": length}) == size
    assert size_of({}) == 0


def test_an_active_connection_outlives_its_timer():
    """The timer starts once; it closes the connection only when no request has been answered for that long."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        closed = loop.create_future()
        quiet, other = socket.socketpair()

        def quiet_socket(name: str) -> socket.socket:
            return quiet

        transport = SimpleNamespace(
            is_closing=closed.done,
            get_extra_info=quiet_socket,
            close=lambda: closed.done() or closed.set_result(loop.time()),
        )
        written: list[bytes] = []
        fields: dict[str, Any] = {
            "loop": loop,
            "transport": transport,
            "timeout_keep_alive": 0.4,
            "timeout_keep_alive_task": None,
            "link": SimpleNamespace(is_lost=False),
            "held": object(),
            "_coalescing": SimpleNamespace(write_response=written.append),
        }
        connection = object.__new__(Connection)
        for name, value in fields.items():
            setattr(connection, name, value)
        last = loop.time()
        for _ in range(12):
            connection.answer(b"x")
            assert connection.held is None
            last = loop.time()
            await asyncio.sleep(0.1)
        assert not closed.done()
        connection.held = cast(Any, object())
        await asyncio.sleep(1.0)
        assert not closed.done()
        connection.held = None
        assert await asyncio.wait_for(closed, 20) >= last + 0.4
        assert written == [b"x"] * 12
        quiet.close()
        other.close()

    asyncio.run(run())
