"""A service that stops answers every request that arrives before it closes its listener."""

import contextlib
import os
import signal
import socket
import time

import pytest

from tests.http.test_launcher import finish, request_in_flight, status_of
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

DRAIN_S, CONNECTIONS = 3, 64
LIVE = b"GET /health/live HTTP/1.1\r\nhost: x\r\n\r\n"


def resume(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("workers", [1, 2])
def test_requests_that_arrive_before_the_listener_closes_are_answered(start, workers):
    """The processes pause until it is time to stop, so the stop begins while requests and connections wait."""
    one = start(DRAIN_S=str(DRAIN_S), WORKERS=str(workers)).wait_until_ready()
    serving = one.workers() if workers > 1 else [one.process.pid]
    with contextlib.ExitStack() as stack:

        def connect() -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", one.port), timeout=PATIENCE_S))

        unfinished = stack.enter_context(request_in_flight(one))
        socks = [connect() for _ in range(CONNECTIONS)]
        for sock in socks:
            sock.sendall(LIVE)
            assert b"connection: close" not in sock.recv(1 << 16)
        one.process.send_signal(signal.SIGTERM)
        one.log_with("draining for", workers)
        for pid in serving:
            os.kill(pid, signal.SIGSTOP)
            stack.callback(resume, pid)
        idle = connect()
        socks += [connect() for _ in range(CONNECTIONS)]
        for sock in socks:
            sock.sendall(LIVE)
        time.sleep(DRAIN_S)
        for pid in serving:
            resume(pid)
        for sock in socks:
            assert finish(sock, b"").count(b"connection: close") == 1
        assert finish(idle, b"") == b""
        # The supervisor does not listen either.
        while status_of(one):
            time.sleep(0.05)
        data = finish(unfinished)
        assert b"HTTP/1.1 200 " in data
        assert b"connection: close" in data
        assert one.wait() == 0
    assert "Traceback" not in one.log()
