"""A client that shuts down its sending half gets all its answers; one that closes the connection ends its request."""

import json
import re
import socket
import time
from collections.abc import Iterator

import pytest

from tests.conftest import Service, Start
from tests.fast_path.conftest import PLUGINS
from tests.fast_path.wire import Wire, post
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
GET = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"


def sending(op: str, count: int = 2) -> bytes:
    return post(f"/v1/ops/{op}/forward", json.dumps({"inputs": {"x": [0.25] * count}}).encode())


@pytest.fixture(scope="module", params=["1", "0"], ids=["fast", "general"])
def service(start_for_module: Start, request: pytest.FixtureRequest) -> Iterator[Service]:
    one = start_for_module(OPS_PATH=str(PLUGINS), EXPRESS=request.param, PROTOCOLS="").wait_until_ready()
    with Wire(one.port) as wire:
        for op in ("dawdling", "square"):
            for _ in range(12):
                wire.send(sending(op))
                assert wire.answer().status == 200
    yield one
    assert "Traceback" not in one.log()
    assert " ERROR " not in one.log()


def answers(service: Service, data: bytes, pause_s: float = 0.0) -> list[int]:
    """Send everything, shut down, and return the statuses of all answers until the end of the connection."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE_S) as sock:
        sock.sendall(data)
        time.sleep(pause_s)
        sock.shutdown(socket.SHUT_WR)
        found = b""
        while piece := sock.recv(1 << 16):
            found += piece
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", found.replace(CONTINUE, b""))]


@pytest.mark.parametrize("pause_s", [0.0, 0.1])
@pytest.mark.parametrize(
    "data",
    [
        sending("square"),
        sending("dawdling"),
        sending("dawdling") + sending("square"),
        GET + sending("dawdling") + GET,
        sending("square", 100_000),
        sending("dawdling") + sending("square", 100_000) + sending("dawdling"),
        GET.replace(b"live", b"gone") + GET,
    ],
    ids=["brief", "long", "two", "three", "large", "a large one among others", "refused"],
)
def test_all_whole_requests_are_answered(service: Service, data: bytes, pause_s: float) -> None:
    expected = [404, 200] if data.startswith(b"GET /health/gone") else [200] * data.count(b" HTTP/1.1\r\n")
    assert answers(service, data, pause_s) == expected


def test_a_part_of_a_request_is_not_answered(service: Service) -> None:
    for cut in (10, -1):
        assert answers(service, sending("dawdling") + sending("square")[:cut], 0.05) == [200]
        assert answers(service, sending("square")[:cut]) == []


def test_a_refusal_follows_the_answers(service: Service) -> None:
    assert answers(service, sending("dawdling") + b"nonsense\r\n\r\n") == [200, 400]
    assert answers(service, sending("dawdling") + b"nonsense\r\n\r\n", 0.1) == [200, 400]


def test_a_stream_of_checks_is_whole(service: Service) -> None:
    body = json.dumps({"ops": ["square"], "checks": ["value", "derivative"]}).encode()
    head = "POST /v1/checks HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE_S) as sock:
        sock.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        sock.shutdown(socket.SHUT_WR)
        found = b""
        while piece := sock.recv(1 << 16):
            found += piece
    assert b'"event":"summary"' in found
    assert found.endswith(b"0\r\n\r\n")


def test_a_client_that_closes_ends_its_request(service: Service) -> None:
    """Its system refuses the interim answer, so its work does not go on."""
    before = service.log().count(" 499 ")
    for _ in range(3):
        with Wire(service.port) as wire:
            wire.send(sending("dawdling"))
            time.sleep(0.05)
    service.log_with(" 499 ", before + 3)
