"""``Host``: HTTP/1.1 needs exactly one, on both paths; the error has the dialect of the path."""

import json
import socket
from collections.abc import Sequence

import pytest

from tests.conftest import Serve
from tests.http.test_chain import parse
from tests.patience import PATIENCE_S
from tests.threaded_service import ThreadedService

BODY = b'{"inputs":{"x":[1,2]}}'
WRONG = {
    "missing": (),
    "empty": ("",),
    "only a port": (":80",),
    "repeated": ("localhost", "localhost"),
    "another": ("localhost", "evil.example"),
}
# A path of each dialect, and what its errors have.
PATHS = {
    "/v1/ops/square/forward": "detail",
    "/Evaluate": "error",
    "/tesseract/square/apply": "detail",
    "/v2/models/square/infer": "error",
    "/health/live": "detail",
}


@pytest.fixture(scope="module", params=["localhost", "*"], ids=["listed", "any"])
def one(serve_for_module: Serve, request: pytest.FixtureRequest) -> ThreadedService:
    return serve_for_module(HOSTS=request.param)


def sending(path: str, hosts: Sequence[str], version: str = "1.1") -> bytes:
    lines = [f"POST {path} HTTP/{version}", *(f"Host: {host}" for host in hosts), "Content-Type: application/json"]
    return "\r\n".join([*lines, f"Content-Length: {len(BODY)}", "", ""]).encode() + BODY


def exchange(one: ThreadedService, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Return the answer to a request."""
    with socket.create_connection(("127.0.0.1", one.port), timeout=PATIENCE_S) as sock:
        sock.sendall(request)
        data = b""
        while b"\r\n\r\n" not in data or len(parse(data)[2]) < int(parse(data)[1]["content-length"]):
            piece = sock.recv(1 << 16)
            assert piece, data
            data += piece
    return parse(data)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("hosts", WRONG.values(), ids=WRONG)
def test_a_request_without_one_host_is_malformed(one: ThreadedService, path: str, hosts: Sequence[str]) -> None:
    status, _, body = exchange(one, sending(path, hosts))
    assert status == 400
    assert "expected one Host header" in str(json.loads(body).get(PATHS[path])), body


def test_the_fast_path_does_not_know_them_either(one: ThreadedService) -> None:
    right, path = ("localhost",), "/v1/ops/square/forward"
    requests = [sending(path, hosts) for _ in range(12) for hosts in (right, *WRONG.values())]
    statuses = [exchange(one, request)[0] for request in requests]
    assert statuses == [200, *[400] * len(WRONG)] * 12


def test_the_first_version_of_http_needs_no_host(one: ThreadedService) -> None:
    status, _, _ = exchange(one, sending("/health/live", (), "1.0").replace(b"POST", b"GET"))
    assert status == 200


def test_a_host_that_is_none(serve: Serve) -> None:
    status, _, body = exchange(serve(HOSTS="*"), sending("/v1/ops/square/forward", ("a b/c",)))
    assert status == 400
    assert "'a b/c'" in json.loads(body)["detail"]
