"""HEAD: wherever GET is answered, the same status and headers, and no body."""

import socket

import httpx
import pytest

from tests.patience import PATIENCE_S

# Pages of every API, by GET.
PAGES = (
    *("/health/live", "/health/ready", "/metrics", "/docs", "/openapi.json", "/v1/ops"),
    *("/v1/ops/square", "/v1/ops/square.vjp", "/static-offline-docs/swagger-ui.css", "/no/such", "/health/no_such"),
    *("/v1/ops/none", "/Info", "/tesseract/square/health", "/tesseract/square/openapi.json", "/tesseract/none/health"),
    *("/v2", "/v2/", "/v2/health/live", "/v2/health/ready", "/v2/models/square/config"),
    *("/v2/models/square", "/v2/models/square.vjp/versions/1", "/v2/models/square/ready", "/v2/models/none"),
    "/v2/systemsharedmemory/status",
)
# These are answered to POST only.
ACTIONS = (
    *("/v1/ops/square/forward", "/v1/ops/square/check", "/v1/checks", "/Evaluate", "/ModelInfo", "/InputSizes"),
    *("/tesseract/square/apply", "/tesseract/square/abstract_eval", "/v2/models/square/infer", "/v2/repository/index"),
)
# The time of the answer, its id, and what a scrape counts.
VARYING = {"date", "x-request-id"}


@pytest.mark.parametrize("path", PAGES)
def test_head_is_get_without_the_body(client: httpx.Client, path: str):
    got, head = client.get(path), client.head(path)
    assert head.status_code == got.status_code
    varying = VARYING | ({"content-length"} if path == "/metrics" else set())
    assert {k: v for k, v in head.headers.items() if k not in varying} == {
        k: v for k, v in got.headers.items() if k not in varying
    }
    assert int(head.headers["content-length"]) > 0
    assert head.content == b""


@pytest.mark.parametrize("path", ACTIONS)
def test_head_is_not_answered_where_get_is_not(client: httpx.Client, path: str):
    got, head = client.get(path), client.head(path)
    assert head.status_code == got.status_code == 405
    assert head.headers["allow"] == got.headers["allow"] == "POST"
    assert head.content == b""


@pytest.mark.parametrize("path", PAGES)
def test_other_methods_learn_that_head_is_allowed(client: httpx.Client, path: str):
    refused = client.delete(path)
    assert refused.status_code in (404, 405)
    if refused.status_code == 405:
        assert set(refused.headers["allow"].split(", ")) == {"GET", "HEAD"}


def test_no_byte_follows_the_headers(service):
    """Or a client would take it for the beginning of the next answer."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE_S) as sock:
        for path in PAGES:
            sock.sendall(f"HEAD {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            data = b""
            while b"\r\n\r\n" not in data:
                data += sock.recv(1 << 16)
            assert data.endswith(b"\r\n\r\n"), path
        sock.sendall(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        assert sock.recv(1 << 16).startswith(b"HTTP/1.1 200 OK\r\n")


def test_the_log_says_that_no_body_was_sent(service, client: httpx.Client):
    client.head("/v1/ops", headers={"x-request-id": "a-head"})
    client.get("/v1/ops", headers={"x-request-id": "a-get"})
    [line] = [line for line in service.log_with(" id=a-get").splitlines() if " id=a-head" in line]
    assert " HEAD /v1/ops 200 " in line
    assert " out=0 " in line
