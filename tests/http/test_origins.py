"""Browsers: pages of other sites cannot use the service, and no response is taken for something else."""

import base64
import hashlib
import json
import re
import socket
from typing import Any

import httpx
import pytest

from app.http.origins import allowed_hosts, without_port
from app.settings import Settings
from pullback.keys import line_for
from tests.http.native_client import problem
from tests.patience import PATIENCE_S
from tests.threaded_service import settings_of

SQUARE = "/v1/ops/square/forward"
REQUEST = {"inputs": {"x": [1, 2]}}
POSTS = ("/v1/ops/square/forward", "/Evaluate", "/tesseract/square/apply", "/v2/models/square/infer", "/no/such")
PAGE = "https://app.example.org"


@pytest.fixture(scope="module")
def opened(serve_for_module: Any):
    """A service for the pages of one other site."""
    return serve_for_module(ORIGINS=f"http://other.example,{PAGE}", HOSTS="localhost,127.0.0.1,me.example")


@pytest.mark.parametrize("host", ["localhost", "LocalHost:1", "127.0.0.1", "127.0.0.1:99", "[::1]", "[::1]:8000"])
def test_this_machine_may_be_named(client: Any, host: Any):
    assert client.post(SQUARE, json=REQUEST, headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "localhost@evil",
        "[::2]",
    ],
)
@pytest.mark.parametrize(
    "path", ["/v1/ops", "/docs", "/Info", "/v2", "/tesseract/square/health", "/metrics", "/no/such"]
)
def test_another_host_is_refused(client: Any, path: Any, host: Any):
    answer = client.get(path, headers={"host": host})
    assert answer.status_code == 403
    assert "expected a Host among 127.0.0.1, [::1], localhost" in answer.text


def test_a_request_without_a_host_is_refused(service: Any):
    with socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE_S) as sock:
        sock.sendall(b"GET /v1/ops HTTP/1.0\r\n\r\n")
        assert sock.recv(100).startswith(b"HTTP/1.1 403 ")


def test_probes_may_use_any_host(client: Any):
    for path in ("/health/live", "/health/ready"):
        assert client.get(path, headers={"host": "10.0.0.7:8000"}).status_code == 200


@pytest.mark.parametrize(
    "origin", [PAGE, "null", "", "http://localhost", "http://localhost:1", "file://", "http://x@127.0.0.1"]
)
@pytest.mark.parametrize("path", POSTS)
def test_pages_of_other_origins_cannot_post(client: Any, path: Any, origin: Any):
    # The content type of a plain HTML form, which browsers send without asking first.
    headers = {"origin": origin, "content-type": "text/plain"}
    answer = client.post(path, content=b'{"name":"square","input":[[1]]}', headers=headers)
    assert answer.status_code == 403
    assert "expected the service's own Origin" in answer.text
    assert "access-control-allow-origin" not in answer.headers


def test_the_own_page_can_post(service: Any, client: Any):
    for host in (f"127.0.0.1:{service.port}", f"localhost:{service.port}"):
        for origin in (f"http://{host}", f"https://{host}".upper()):
            answer = client.post(SQUARE, json=REQUEST, headers={"host": host, "origin": origin})
            assert answer.status_code == 200


def test_browsers_are_not_told_that_they_may_ask(client: Any):
    headers = {"origin": PAGE, "access-control-request-method": "POST"}
    answer = client.options(SQUARE, headers=headers)
    assert answer.status_code >= 400
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert "access-control-allow-origin" not in client.get("/v1/ops", headers=headers).headers


def test_pages_of_allowed_origins_can_post_and_read(opened: Any):
    with opened.client() as client:
        asked = {
            "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type",
        }
        answer = client.options(SQUARE, headers={"origin": PAGE, **asked})
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert "POST" in answer.headers["access-control-allow-methods"]
        assert "authorization" in answer.headers["access-control-allow-headers"].lower()
        for body, status in ((REQUEST, 200), ({}, 422)):
            answer = client.post(SQUARE, json=body, headers={"origin": PAGE})
            assert answer.status_code == status
            assert answer.headers["access-control-allow-origin"] == PAGE
            assert answer.headers["vary"] == "Origin"
            assert "X-Request-Id" in answer.headers["access-control-expose-headers"]
        for origin in ("https://evil.example", PAGE + ".evil.example", PAGE.replace("https", "http")):
            answer = client.post(SQUARE, json=REQUEST, headers={"origin": origin})
            assert answer.status_code == 403
            assert "access-control-allow-origin" not in answer.headers


PATHS = (*POSTS, "/v1/ops", "/v1/checks", "/health/ready", "/metrics", "/docs", "/openapi.json", "/v2", "/", "*")
PREFLIGHT = {
    "origin": PAGE,
    "access-control-request-method": "POST",
    "access-control-request-headers": "accept,authorization,content-type,pullback-deadline-ms,"
    "inference-header-content-length,x-request-id,x-anything",
    "access-control-request-private-network": "true",
}


@pytest.fixture(scope="module", params=["one origin", "any origin", "with keys"])
def for_pages(request: pytest.FixtureRequest, serve_for_module: Any, tmp_path_factory: Any):
    """A service for pages, and the headers of their requests."""
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text(line_for("page", "key"))
    settings = {"one origin": {"ORIGINS": PAGE}, "any origin": {"ORIGINS": "*"}}
    settings["with keys"] = {"ORIGINS": PAGE.upper(), "KEYS_FILE": str(file), "KEY_INFLIGHT": "1"}
    own = {"origin": PAGE} | ({"authorization": "Bearer key"} if request.param == "with keys" else {})
    return serve_for_module(**settings[request.param], MAX_JSON_MB="1"), own


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
def test_preflights_are_answered_on_every_path_without_a_key(for_pages: Any, method: str):
    service, _ = for_pages
    with service.client() as client:
        for path in PATHS:
            asked = PREFLIGHT | {"access-control-request-method": method}
            answer = client.options(path, headers=asked)
            assert answer.status_code == 200, path
            assert answer.headers["access-control-allow-origin"] in (PAGE, "*")
            assert method in answer.headers["access-control-allow-methods"].split(", ")
            assert answer.headers["access-control-allow-headers"] == PREFLIGHT["access-control-request-headers"]
            assert answer.headers["access-control-allow-private-network"] == "true"
            assert int(answer.headers["access-control-max-age"]) >= 600
            assert "Origin" in answer.headers["vary"]
            assert answer.headers["x-content-type-options"] == "nosniff"


def test_refused_preflights_are_problems(opened: Any):
    with opened.client() as client:
        for change, reason in (
            ({"origin": "https://evil.example"}, "own Origin, got 'https://evil.example'"),
            ({"origin": "null"}, "own Origin, got 'null'"),
            ({"access-control-request-method": "TRACE"}, "methods GET, HEAD, POST, PUT, PATCH, DELETE, got 'TRACE'"),
            ({"origin": "https://evil.example/" + "x" * 5000}, "own Origin"),
        ):
            answer = client.options(SQUARE, headers=PREFLIGHT | change)
            assert answer.status_code == 403
            assert reason in problem(answer, 403)["detail"]
            assert "Origin" in answer.headers["vary"]
            assert "access-control-allow-origin" not in answer.headers


# What a page may always read, and what no page needs.
READABLE = {"cache-control", "content-language", "content-length", "content-type", "expires", "last-modified", "pragma"}
UNNEEDED = {
    "date",
    "vary",
    "connection",
    "transfer-encoding",
    "x-content-type-options",
    "content-security-policy",
    "etag",
    "accept-ranges",
}


def test_a_page_can_read_every_answer_and_its_headers(for_pages: Any):
    service, own = for_pages
    binary = {"content-type": "application/octet-stream", "inference-header-content-length": "2"}
    requests: list[Any] = [
        *(("POST", SQUARE, REQUEST, {}, 200) for _ in range(5)),
        ("POST", SQUARE, {"inputs": {"x": "one"}}, {}, 422),
        ("POST", "/v1/ops/square/nothing", {}, {}, 404),
        ("POST", SQUARE, None, {"content-type": "text/plain"}, 415),
        ("POST", SQUARE, {"inputs": {"x": [0] * 600_000}}, {}, 413),
        ("GET", SQUARE, None, {}, 405),
        ("POST", SQUARE, REQUEST, {"accept": "text/html"}, 406),
        ("POST", "/v1/checks", {"ops": ["square"], "checks": ["contract"]}, {}, 200),
        ("POST", "/Evaluate", {"name": "square", "input": [[1]], "config": {"shape": [1]}}, {}, 200),
        ("POST", "/tesseract/square/apply", {}, {}, 422),
        ("POST", "/v2/models/square/infer", None, binary, 400),
        ("GET", "/v1/ops", None, {}, 200),
        ("HEAD", "/v2", None, {}, 200),
        ("GET", "/docs", None, {}, 200),
        ("GET", "/no/such", None, {}, 404),
    ]
    with service.client() as client:
        for method, path, body, headers, status in requests:
            answer = client.request(method, path, json=body, headers=own | headers)
            assert answer.status_code == status, (path, answer.text)
            assert_readable(answer)
        assert_readable(client.get("/v1/ops", headers={"origin": PAGE}))


def assert_readable(answer: httpx.Response) -> None:
    assert answer.headers["access-control-allow-origin"] in (PAGE, "*")
    assert "Origin" in answer.headers["vary"]
    exposed = {name.strip().lower() for name in answer.headers["access-control-expose-headers"].split(",")}
    read = {name for name in answer.headers if not name.startswith("access-control-")}
    assert read <= exposed | READABLE | UNNEEDED
    assert {"x-request-id", "retry-after", "inference-header-content-length"} <= exposed


def test_a_page_can_read_that_it_must_try_again(for_pages: Any):
    service, own = for_pages
    if "authorization" not in own:
        pytest.skip("the limit is that of a key")
    body = json.dumps({"ops": ["square"], "checks": ["contract"]})
    with service.client() as client, client.stream("POST", "/v1/checks", json={"ops": None}, headers=own) as running:
        assert running.status_code == 200
        assert_readable(running)
        answer = client.post("/v1/checks", content=body, headers=own | {"content-type": "application/json"})
        assert answer.status_code == 429
        assert_readable(answer)
        assert int(answer.headers["retry-after"]) >= 1


def test_other_origins_learn_nothing_from_learned_requests(opened: Any):
    """Requests that repeat others take a shorter way, which must tell origins apart."""
    with opened.client() as client:
        for _ in range(5):
            for origin, status in (
                (PAGE, 200),
                ("https://evil.example", 403),
                ("http://other.example", 200),
                (None, 200),
            ):
                answer = client.post(SQUARE, json=REQUEST, headers={} if origin is None else {"origin": origin})
                assert answer.status_code == status
                told = answer.headers.get("access-control-allow-origin")
                assert told == (origin if status == 200 else None)
                assert "Origin" in answer.headers["vary"]


def test_hosts_can_be_set(opened: Any):
    with opened.client() as client:
        assert client.get("/v1/ops", headers={"host": "me.example"}).status_code == 200
        assert client.get("/v1/ops", headers={"host": "[::1]"}).status_code == 403


@pytest.mark.parametrize(
    ("settings", "hosts"),
    [
        (dict[str, str](), {b"localhost", b"127.0.0.1", b"[::1]"}),
        ({"HOST": "localhost"}, {b"localhost", b"127.0.0.1", b"[::1]"}),
        ({"HOST": "::1"}, {b"localhost", b"127.0.0.1", b"[::1]"}),
        ({"HOST": "127.0.0.9"}, {b"localhost", b"127.0.0.1", b"[::1]", b"127.0.0.9"}),
        ({"HOST": "0.0.0.0"}, set[bytes]()),
        ({"HOST": "::"}, set[bytes]()),
        ({"HOST": ""}, set[bytes]()),
        ({"HOST": "gradients.example"}, set[bytes]()),
        ({"HOST": "0.0.0.0", "HOSTS": "A.example, [::1]"}, {b"a.example", b"[::1]"}),
        ({"HOSTS": "*"}, set[bytes]()),
    ],
)
def test_the_hosts_follow_the_address(settings: Any, hosts: Any):
    assert allowed_hosts(settings_of(**settings)) == hosts


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hosts", "localhost:8000"),
        ("hosts", "http://x"),
        ("hosts", "a b"),
        ("origins", "example.org"),
        ("origins", "https://x/"),
    ],
)
def test_invalid_lists_are_refused(name: Any, value: Any):
    with pytest.raises(ValueError, match=name):
        Settings(**{name: value})


def test_the_port_is_no_part_of_a_host():
    for host in (b"a", b"a:1", b"a:"):
        assert without_port(host) == b"a"
    assert without_port(b"[::1]:80") == without_port(b"[::1]") == b"[::1]"
    assert without_port(b"") == b""


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/v1/ops", "/health/live", "/metrics", "/no/such", "/Info"])
def test_browsers_do_not_guess_types(client: Any, path: Any):
    assert client.get(path).headers["x-content-type-options"] == "nosniff"


def test_malformed_requests_get_no_guessed_type_either(service: Any):
    with socket.create_connection(("127.0.0.1", service.port), timeout=PATIENCE_S) as sock:
        sock.sendall(b"nonsense\r\n\r\n")
        assert b"\r\nx-content-type-options: nosniff\r\n" in sock.recv(1000)


@pytest.mark.parametrize("path", ["/docs", "/explore"])
def test_the_policy_of_a_page_allows_its_own_script_alone(client: Any, path: str):
    page = client.get(path)
    policy = dict(rule.split(" ", 1) for rule in page.headers["content-security-policy"].split("; "))
    scripts = re.findall(r"<script>(.*?)</script>", page.text, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert policy["script-src"].split() == ["'self'", *(f"'sha256-{digest}'" for digest in digests)]
    assert len(scripts) == 1
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["connect-src"] == "'self'"
    # Nothing else on the page runs: no handlers in attributes, no scripts of other hosts.
    assert not re.search(r"\son\w+=", page.text)
    assert all(source.startswith("/") for source in re.findall(r"<script src=\"([^\"]+)", page.text))
