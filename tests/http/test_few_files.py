"""A low limit of open files: connections over the limit get 503, or wait, and probes are answered."""

import contextlib
import resource
import socket

import pytest

from tests.conftest import Start
from tests.patience import PATIENCE_S

FILES, CLIENTS = 128, 200
LIVE, OTHER = (f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode() for path in ("/health/live", "/v1/ops"))


@pytest.mark.slow
def test_clients_over_the_limit(launch: Start) -> None:
    one = launch(CONNECTIONS="4096", CHECK_PROCESSES="0", JOBS="0", PROTOCOLS="")
    assert one.process.pid
    resource.prlimit(one.process.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
    one.wait_until_ready()
    assert one.log_with("the limit of open files allows only 64 connections")
    with contextlib.ExitStack() as stack:
        address = ("127.0.0.1", one.port)
        idle = [stack.enter_context(socket.create_connection(address, PATIENCE_S)) for _ in range(CLIENTS)]
        for sock in idle:
            sock.sendall(OTHER)
        statuses = [sock.recv(12) for sock in idle]
        assert set(statuses) == {b"HTTP/1.1 200", b"HTTP/1.1 503"}
        assert statuses.count(b"HTTP/1.1 200") == 64
        # These send nothing, and get their 503 all the same.
        silent = [stack.enter_context(socket.create_connection(address, PATIENCE_S)) for _ in range(CLIENTS)]
        assert {sock.recv(12) for sock in silent} == {b"HTTP/1.1 503"}
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", one.port), PATIENCE_S) as probe:
                probe.sendall(LIVE)
                assert probe.recv(12) == b"HTTP/1.1 200"
    assert "Traceback" not in one.log()
