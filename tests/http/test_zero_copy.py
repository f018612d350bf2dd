"""Bodies that bypass the parser into the application's memory, and responses from it, in a small application."""

import contextlib
import socket
import threading
import time
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from uvicorn import Config

from app.http import deadlines
from app.http.connection import Connection
from app.http.request import Request
from app.requests.answering import Reply, send_reply
from app.settings import Settings
from tests.http.handlers import application
from tests.http.test_chain import Started
from tests.http.test_large_bodies import answer
from tests.http.test_limits import connected
from tests.patience import PATIENCE_S, PAUSE_S

SIZE = 3 << 20
BODY = np.random.default_rng(1).bytes(SIZE)
HEAD = b"POST /%b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"


class Inside:
    """Answer a body with itself or with a lot of memory, and record how it arrived."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self.answers: list[weakref.ref] = []
        self.keeps_limit: list[bool] = []
        self.ended = threading.Event()

    @staticmethod
    def limit(request: Request) -> int:
        """Return how many bytes the transport of a request holds before it pauses writing."""
        assert request.link.transport is not None
        return request.link.transport.get_write_buffer_limits()[1]

    async def __call__(self, request: Request) -> None:
        receive = request._receive

        async def watched():
            message = await receive()
            if isinstance(message.get("body"), memoryview):
                self.received.append(len(message["body"]))
            return message

        request._receive = watched
        body = array = None
        try:
            body = await request.read(is_binary=True)
            assert np.frombuffer(body, np.uint8).ctypes.data % 64 == 0
            size = (64 << 20) if request.path == "/much" else 0
            array = np.frombuffer(body, np.uint8) if not size else np.zeros(size, np.uint8)
            self.answers.append(weakref.ref(array))
            before = self.limit(request)
            await send_reply(Reply("x/y", [b"", array.data]), request)
            self.keeps_limit.append(self.limit(request) == before)
        finally:
            del body, array
            self.ended.set()


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def served(request):
    inside = Inside()
    quiet = {"lifespan": "off", "log_config": None, "access_log": False}
    settings = Settings()
    server = Started(Config(application(inside, settings), http=Connection, loop=request.param, ws="none", **quiet))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            assert server.ready.wait(PATIENCE_S)
            yield SimpleNamespace(port=listener.getsockname()[1], inside=inside)
        finally:
            server.should_exit = True
            thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_most_of_a_body_bypasses_the_parser(served):
    served.inside.received.clear()
    served.inside.keeps_limit.clear()
    with connected(served) as sock:
        for _ in range(2):
            sock.sendall(HEAD % (b"", SIZE) + BODY)
            assert answer(sock) == (200, BODY)
    # The client may have the answer first.
    until = time.monotonic() + PATIENCE_S
    while len(served.inside.keeps_limit) < 2 and time.monotonic() < until:
        time.sleep(PAUSE_S)
    assert served.inside.keeps_limit == [True, True]
    assert sum(served.inside.received) > 2 * (SIZE - (1 << 20))


@pytest.mark.parametrize("first", [0, 1, 65_537, SIZE - (1 << 18) - 1, SIZE - 1])
def test_the_next_request_is_found_after_a_body(served, first: int):
    small = HEAD % (b"", 5) + b"small"
    with connected(served) as sock:
        for _ in range(2):
            sock.sendall(HEAD % (b"", SIZE) + BODY[:first])
            time.sleep(0.05)
            # In a thread: the response begins before all of this is read.
            rest = BODY[first:] + small + HEAD % (b"", SIZE) + BODY[:70_000]
            sender = threading.Thread(target=sock.sendall, args=(rest,))
            sender.start()
            assert answer(sock) == (200, BODY)
            assert answer(sock) == (200, b"small")
            sender.join()
            sock.sendall(BODY[70_000:])
            assert answer(sock) == (200, BODY)


def test_a_disconnect_within_a_body_is_noticed(served):
    for first in (70_000, SIZE - 1):
        served.inside.ended.clear()
        with connected(served) as sock:
            sock.sendall(HEAD % (b"", SIZE) + BODY[:first])
            time.sleep(0.05)
        assert served.inside.ended.wait(PATIENCE_S)


def test_unread_responses_are_not_buffered(served, monkeypatch):
    monkeypatch.setattr(deadlines, "SEND_S", 0.3)
    served.inside.ended.clear()
    with connected(served) as sock:
        sock.sendall(HEAD % (b"much", SIZE) + BODY)
        assert served.inside.ended.wait(PATIENCE_S)
        until = time.monotonic() + PATIENCE_S
        while served.inside.answers[-1]() is not None and time.monotonic() < until:
            time.sleep(0.05)
        assert served.inside.answers[-1]() is None
        with contextlib.suppress(ConnectionError):
            while sock.recv(1 << 20):
                pass


def test_a_slow_client_gets_the_whole_response(served):
    with connected(served) as sock:
        sock.sendall(HEAD % (b"much", SIZE) + BODY)
        time.sleep(0.3)
        status, body = answer(sock)
        assert (status, len(body), body.count(0)) == (200, 64 << 20, 64 << 20)
        sock.sendall(HEAD % (b"", SIZE) + BODY)
        assert answer(sock) == (200, BODY)
