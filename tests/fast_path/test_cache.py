"""What the fast path keeps is bounded, and its timer leaves active connections alone."""

import asyncio
import random
import socket
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from app.fast_path.prefixes import (
    COUNTED,
    FAILURES,
    PREFIXES,
    SEEN,
    TEMPLATE_BYTES,
    TEMPLATES,
    RequestPrefix,
    TemplateCache,
    cut,
    parse_prefix,
)
from app.fast_path.templates import RunReader, Template
from app.http.connection import Connection
from app.tensors.dtypes import DTYPES

HEAD = b"POST /v1/ops/x/vjp HTTP/1.1\r\nx: %d\r\ncontent-length: \r\n\r\n"
MANY = 5_000


def template(number: int, size: int = 0) -> Template:
    """Return a template of a body with this number, which keeps a constant of ``size`` bytes."""
    response: Any = SimpleNamespace(head=(b"",) * 4, layout=SimpleNamespace(constants=(b"",)))
    reader = RunReader(b"%d" % number, ((1,),), (np.zeros(size, np.uint8),), (DTYPES["float32"],))
    nothing: Any = None
    return Template(reader, nothing, 1, ((),), response, nothing, nothing)


def test_counts_are_bounded():
    cache = TemplateCache()
    for number in range(MANY):
        for _ in range(SEEN - 1):
            assert not cache.is_due(HEAD % number)
        assert cache.is_due(HEAD % number)
    assert len(vars(cache)["_counts"]) == COUNTED


def test_prefixes_are_bounded():
    cache = TemplateCache()
    for number in range(3 * PREFIXES):
        key = HEAD % number
        assert cache.find(key) is None
        cache.add(key, parse_prefix(key))
        assert key in cache.prefixes
    assert len(cache.prefixes) == PREFIXES
    assert cache.find(HEAD % (3 * PREFIXES - 1)) is not None
    assert cache.find(HEAD % 0) is None


def test_a_prefix_in_use_is_kept():
    cache = TemplateCache()
    for number in range(2 * PREFIXES):
        cache.add(HEAD % number, parse_prefix(HEAD % number))
        assert cache.find(HEAD % 0) is not None


def test_templates_are_bounded():
    prefix = RequestPrefix("/x", b"")
    for number in range(MANY):
        prefix.add(b"%d" % number, template(number))
    assert len(prefix.by_skeleton) + len(prefix.by_length) <= 2 * TEMPLATES


def test_the_bytes_of_templates_are_bounded():
    cache, size = TemplateCache(), TEMPLATE_BYTES // 64
    prefixes = [RequestPrefix("/x", b"") for _ in range(128)]
    for number, prefix in enumerate(prefixes):
        cache.add(HEAD % number, prefix)
        cache.store(prefix, b"", template(number, size))
    kept = [prefix for prefix in cache.prefixes.values() if prefix is not None]
    assert sum(prefix.weight for prefix in kept) <= TEMPLATE_BYTES
    assert kept


def test_the_weight_of_all_prefixes_is_kept_up_to_date():
    cache, rng = TemplateCache(), random.Random(2)
    for number in range(2_000):
        key = HEAD % rng.randrange(2 * PREFIXES)
        prefix = cache.find(key)
        if prefix is None:
            cache.add(key, parse_prefix(key))
        else:
            cache.store(prefix, b"%d" % number, template(number, rng.randrange(TEMPLATE_BYTES // 100)))
        kept = [prefix for prefix in cache.prefixes.values() if prefix is not None]
        assert vars(cache)["_weight"] == sum(prefix.weight for prefix in kept) <= TEMPLATE_BYTES


def test_a_prefix_with_templates_does_not_rest():
    cache = TemplateCache()
    for number, weight in enumerate((0, 1)):
        key = HEAD % number
        cache.add(key, parse_prefix(key))
        prefix = cache.find(key)
        assert prefix is not None
        if weight:
            cache.store(prefix, b"", template(1))
        prefix.failures = FAILURES
        assert (cache.find(key) is None) == (not weight)


@pytest.mark.parametrize(
    ("data", "is_whole"),
    [
        (HEAD.replace(b"length: ", b"length: 2") % 1 + b"{}", True),
        (HEAD.replace(b"length: ", b"length: 2") % 1 + b"{}x", False),
        (HEAD.replace(b"length: ", b"length: 02") % 1 + b"{}", False),
        (HEAD.replace(b"length: ", b"length: 0") % 1, False),
        (HEAD.replace(b"length: ", b"length: 400000") % 1 + b"{}", False),
        (HEAD.replace(b"length: ", b"length: 999999") % 1 + b"{}", False),
        (b"GET" + HEAD[4:] % 1, False),
        (b"POST / HTTP/1.1\r\n\r\n\r\ncontent-length: 2\r\n\r\n{}", False),
        (b"POST / HTTP/1.1\r\ncontent-length: 2\r\n", False),
        (b"POST / HTTP/1.1\r\nx: " + b"y" * 4096 + b"\r\ncontent-length: 2\r\n\r\n{}", False),
    ],
)
def test_a_cut(data, is_whole):
    found = cut(data)
    assert (found is not None) == is_whole
    if found is not None:
        assert not found.own
        assert (found.key, data[found.start : found.end]) == (HEAD % 1, b"{}")


@pytest.mark.parametrize(
    "line",
    [
        b"X-Request-Id: \x01",
        b"Pullback-Deadline-Ms: 9\n",
        b"Expect: 100-continue",
        b"Connection: a, close",
    ],
)
def test_headers_on_which_a_response_depends(line: bytes):
    assert parse_prefix(HEAD % 1) is not None
    assert parse_prefix((HEAD % 1).replace(b"\r\n\r\n", b"\r\n" + line + b"\r\n\r\n")) is None


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
            "is_waiting": True,
            "_coalescing": SimpleNamespace(write_response=written.append),
        }
        connection = cast(Connection, object.__new__(Connection))
        for name, value in fields.items():
            setattr(connection, name, value)
        last = loop.time()
        for _ in range(12):
            connection.answer(b"x")
            assert not connection.is_waiting
            last = loop.time()
            await asyncio.sleep(0.1)
        assert not closed.done()
        connection.is_waiting = True
        await asyncio.sleep(1.0)
        assert not closed.done()
        connection.is_waiting = False
        assert await asyncio.wait_for(closed, 20) >= last + 0.4
        assert written == [b"x"] * 12
        quiet.close()
        other.close()

    asyncio.run(run())
