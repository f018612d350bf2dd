"""Keys: every path but the probes needs one; the log and the metrics name it; it has a limit of requests at a time."""

import asyncio
import base64
import contextlib
import hashlib
import json
import re
import socket
import time
from pathlib import Path

import httpx
import pytest

import pullback
from app.errors import CannotStart, TooManyRequests
from app.http.key_file import MAX_FILE, MAX_KEYS, KeyFile, KeyFileCopy
from app.http.keys import Keys
from app.http.quotas import Buckets
from app.telemetry.accounts import Accounts
from pullback.keys import line_for, new_key
from tests.patience import PATIENCE_S

ALICE, BOB = "pullback_Of-Alice-0123", "pullback_Of-Bob-4567"
# Other keys, and what limits them.
LIMITED = {
    "past": ["until=2020-02-29"],
    "future": ["until=2999-12-31", "may=call,operate"],
    "caller": ["may=call"],
    "checker": ["may=check,post"],
    "seldom": ["rate=12/h"],
}
KEYS = {name: f"pullback_Of-{name}-0123" for name in LIMITED}
SQUARE = "/v1/ops/square/forward"
REQUEST = b'{"inputs":{"x":[1,2]}}'
JSON = {"content-type": "application/json"}
# A path of each protocol, and the error's text in its answer.
DIALECTS = {
    SQUARE: lambda answer: answer["detail"],
    "/Evaluate": lambda answer: answer["error"]["message"],
    "/tesseract/square/apply": lambda answer: answer["detail"],
    "/v2/models/square/infer": lambda answer: answer["error"],
}
PATHS = (
    *DIALECTS,
    "/v1/ops",
    "/v1/checks",
    "/metrics",
    "/docs",
    "/openapi.json",
    "/Info",
    "/v2",
    "/no/such",
    "/v2/health/live",
    "/v2/logging",
    "/v2/models/square/trace/setting",
)


@pytest.fixture(scope="module")
def keys_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "keys"
    lines = [line_for(name, KEYS[name], terms) for name, terms in LIMITED.items()]
    path.write_text(f"# who may come in\n{line_for('alice', ALICE)}  # until June\n\n{line_for('bob', BOB)}\n")
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)
    return path


@pytest.fixture(scope="module")
def guarded(start_for_module, keys_file):
    """A service with two keys, each for one request at a time."""
    return start_for_module(KEYS_FILE=str(keys_file), KEY_INFLIGHT="1").wait_until_ready()


@pytest.fixture(scope="module")
def anybody(guarded):
    with guarded.client() as one:
        yield one


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def basic(key: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"anyone:{key}".encode()).decode()}


@contextlib.contextmanager
def request_in_flight(one, key: str):
    """A request in flight: the service has requested its body."""
    head = f"POST {SQUARE} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\nconnection: close\r\n"
    head += f"content-type: application/json\r\nexpect: 100-continue\r\ncontent-length: {len(REQUEST)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", one.port), timeout=PATIENCE_S) as sock:
        sock.sendall(head.encode())
        assert sock.recv(100).startswith(b"HTTP/1.1 100 ")
        yield sock
        sock.sendall(REQUEST)
        assert b"HTTP/1.1 200 " in sock.recv(1000)


def test_a_browser_does_not_ask_where_a_page_does(anybody):
    """For a script of a page, a challenge of the Basic scheme would open the browser's own dialog."""
    bearer, basic = 'Bearer realm="pullback"', 'Basic realm="pullback"'
    for destination, challenge in {"document": f"{bearer}, {basic}", "empty": bearer}.items():
        answer = anybody.get("/v1/ops", headers={"sec-fetch-dest": destination})
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, challenge)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_every_path_needs_a_key(anybody, path, method):
    answer = anybody.request(method, path)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer ")
    assert "x-request-id" in answer.headers


@pytest.mark.parametrize(("path", "text"), DIALECTS.items())
def test_each_protocol_says_so_in_its_own_words(anybody, path, text):
    assert text(anybody.post(path, json={}).json()).startswith(
        "expected a key, as 'Authorization: Bearer KEY', got none"
    )
    answer = anybody.post(path, json={}, headers=bearer(new_key()))
    assert answer.status_code == 401
    assert text(answer.json()).startswith("expected a known key, got an unknown one")


def test_probes_need_no_key(anybody):
    assert anybody.get("/health/live").status_code == 200
    assert anybody.get("/health/ready").status_code == 200
    assert anybody.get("/health/no_such").status_code == 404


@pytest.mark.parametrize("header", [bearer(ALICE), {"authorization": f"bEARER  {ALICE}"}, basic(ALICE), basic(BOB)])
def test_a_key_lets_in(anybody, header):
    for path in ("/v1/ops", "/docs", "/metrics", "/Info", "/v2", "/tesseract/square/health"):
        assert anybody.get(path, headers=header).status_code == 200, path
    assert anybody.post(SQUARE, content=REQUEST, headers={**JSON, **header}).json()["outputs"]["y"]["data"] == [1, 4]


def test_a_key_is_valid_until_its_last_day(anybody):
    answer = anybody.get("/v1/ops", headers=bearer(KEYS["past"]))
    assert answer.status_code == 401
    assert answer.json()["detail"].startswith("expected a valid key, got past, which has expired")
    assert anybody.get("/metrics", headers=bearer(KEYS["future"])).status_code == 200


@pytest.mark.parametrize(
    ("name", "method", "path", "status"),
    [
        ("caller", "GET", "/v1/ops", 200),
        ("caller", "GET", "/metrics", 403),
        ("caller", "HEAD", "/metrics", 403),
        ("caller", "POST", "/v1/checks", 403),
        ("caller", "POST", "/v1/ops/square/check", 403),
        ("caller", "POST", "/v1/ops/square.vjp/chec%6b", 403),
        ("caller", "POST", "/v1/ops/square/verify", 403),
        ("caller", "POST", "/v1/graphs", 403),
        ("caller", "GET", "/v1/graphs/none", 404),
        ("checker", "POST", "/v1/ops/square/verify", 415),
        ("checker", "POST", "/v1/graphs", 415),
        ("checker", "GET", "/v1/jobs", 200),
        ("checker", "GET", "/v1/jobs/none/result", 404),
        ("checker", "DELETE", "/v1/jobs/none", 404),
        ("checker", "POST", SQUARE, 403),
        ("checker", "POST", "/Evaluate", 403),
        ("checker", "POST", "/v2/models/square/infer", 403),
        ("checker", "POST", "/tesseract/square/apply", 403),
        ("future", "GET", "/metrics", 200),
        ("future", "POST", "/v1/checks", 403),
    ],
)
def test_a_key_is_for_its_scopes(anybody, name, method, path, status):
    answer = anybody.request(method, path, headers=bearer(KEYS[name]))
    assert answer.status_code == status, answer.text
    if status == 403 and method != "HEAD":
        assert f"got {name}, which is for " in answer.text


def test_a_key_has_a_rate(anybody):
    """The first requests take the general path, the next ones the fast path, and those that overflow both."""
    headers = {**JSON, **bearer(KEYS["seldom"])}
    numbers = [*range(8), "1e30", "2e30", "3e30", "4e30"]
    bodies = [f'{{"inputs":{{"x":[1,{x}]}}}}'.encode() for x in numbers]
    assert [anybody.post(SQUARE, content=body, headers=headers).status_code for body in bodies] == [200] * 12
    answer = anybody.post(SQUARE, content=REQUEST, headers=headers)
    assert answer.status_code == 429
    assert answer.json()["detail"] == "expected at most 12 requests in 3600 s with the key seldom, got more"
    assert 0 < int(answer.headers["retry-after"]) <= 300


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        f"Bearer {ALICE[:-1]}",
        f"Bearer {ALICE}x",
        f"Bearer {ALICE.swapcase()}",
        f"Bearer {ALICE} {ALICE}",
        f"Bearer {hashlib.sha256(ALICE.encode()).hexdigest()}",
        f"Bearer {'a' * 60000}",
        "Bearer alice",
        ALICE,
        f"Token {ALICE}",
        "Basic",
        "Basic ?",
        f"Basic {ALICE}",
        "Basic " + base64.b64encode(ALICE.encode()).decode(),
        "Basic " + base64.b64encode(f"{ALICE}:".encode()).decode(),
    ],
)
def test_any_other_header_is_refused(anybody, authorization):
    answer = anybody.get("/v1/ops", headers={"authorization": authorization})
    assert answer.status_code == 401
    assert ALICE not in answer.text


def test_pages_of_allowed_origins_learn_that_a_key_is_missing(serve, keys_file):
    """A browser asks without the key whether it may send one."""
    page = {"origin": "https://app.example.org"}
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    with serve(KEYS_FILE=str(keys_file), ORIGINS=page["origin"]).client() as client:
        assert client.options(SQUARE, headers={**page, **asked}).status_code == 200
        for header, status in (({}, 401), (bearer(ALICE), 200)):
            answer = client.post(SQUARE, content=REQUEST, headers={**page, **JSON, **header})
            assert answer.status_code == status
            assert answer.headers["access-control-allow-origin"] == page["origin"]
        # An origin that is not allowed is refused whatever its key.
        other = {"origin": "https://evil.example"}
        assert client.post(SQUARE, content=REQUEST, headers={**other, **JSON, **bearer(ALICE)}).status_code == 403


def test_a_body_without_a_key_is_not_read(guarded):
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=PATIENCE_S) as sock:
        sock.sendall(f"POST {SQUARE} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {1 << 40}\r\n\r\n".encode())
        assert sock.recv(1000).startswith(b"HTTP/1.1 401 ")


def test_the_document_says_which_paths_need_a_key(anybody, client):
    document = anybody.get("/openapi.json", headers=bearer(ALICE)).json()
    scheme = document["components"]["securitySchemes"]["key"]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    assert document["security"] == [{"key": []}]
    opened = {name for name, methods in document["paths"].items() if methods.get("get", {}).get("security") == []}
    assert opened == {"/health/live", "/health/ready"}
    assert "security" not in client.get("/openapi.json").json()


def test_the_log_and_the_metrics_name_the_key(guarded, anybody):
    anybody.get("/v1/ops", headers={**bearer(BOB), "x-request-id": "by-bob"})
    anybody.get("/v1/ops", headers={**bearer("nobody's"), "x-request-id": "by-nobody"})
    lines = wait_for_log(guarded, "id=by-nobody")
    assert re.search(r" 200 .* id=by-bob key=bob$", lines, re.MULTILINE)
    assert re.search(r" 401 .* id=by-nobody key=-$", lines, re.MULTILINE)
    assert "nobody's" not in lines
    assert ALICE not in lines
    counted = anybody.get("/metrics", headers=bearer(BOB)).text
    assert re.search(r'^pullback_key_requests_total\{key="bob",status="200"\} \d', counted, re.MULTILINE)
    assert re.search(r'^pullback_key_requests_total\{key="",status="401"\} \d', counted, re.MULTILINE)
    assert "nobody" not in counted


def test_a_json_log_names_the_key(start, keys_file):
    one = start(KEYS_FILE=str(keys_file), LOG="json").wait_until_ready()
    with one.client() as client:
        client.get("/v1/ops", headers={**bearer(BOB), "x-request-id": "by-bob"})
    line = next(line for line in wait_for_log(one, '"by-bob"').splitlines() if '"by-bob"' in line)
    assert json.loads(line)["key"] == "bob"


def test_a_key_has_a_limit_of_requests_in_progress(guarded, anybody):
    with request_in_flight(guarded, ALICE):
        for path, text in DIALECTS.items():
            answer = anybody.post(path, json={}, headers=bearer(ALICE))
            assert answer.status_code == 429
            assert answer.headers["retry-after"] == "1"
            assert text(answer.json()).startswith("expected at most 1 requests at a time with the key alice")
        assert anybody.get("/v1/ops", headers=bearer(BOB)).status_code == 200
        assert anybody.get("/health/live").status_code == 200
    # The refused requests have given their places back too.
    for _ in range(3):
        answer = anybody.post(SQUARE, content=REQUEST, headers={**JSON, **bearer(ALICE)})
        assert answer.status_code == 200, answer.text


def test_a_changed_file_is_read_again(guarded, keys_file, anybody):
    carol, before = new_key(), keys_file.read_text()
    keys_file.write_text(before + line_for("carol", carol) + "\n")
    wait_for_status(anybody, carol, 200)
    # A key instead of its digest, by mistake: nothing changes, and the log does not show it.
    keys_file.write_text(f"{before}carol:{carol}\n")
    assert "line 10: expected NAME:SHA256" in wait_for_log(guarded, "the previous keys stay valid")
    assert carol not in guarded.log()
    assert anybody.get("/v1/ops", headers=bearer(carol)).status_code == 200
    keys_file.unlink()
    wait_for_log(guarded, "cannot read", asking=anybody)
    assert anybody.get("/v1/ops", headers=bearer(carol)).status_code == 200
    keys_file.write_text(before)
    wait_for_status(anybody, carol, 401)
    assert anybody.get("/v1/ops", headers=bearer(ALICE)).status_code == 200


def test_the_client_sends_its_key(guarded, monkeypatch):
    with pullback.Client(guarded.url) as client, pytest.raises(pullback.Unauthorized, match="expected a key"):
        client.ops()
    with pullback.Client(guarded.url, api_key=ALICE) as client:
        assert client.ops()
        assert list(client.checks(["square"], orders=[1]))
    # A key replaces the password of the URL.
    monkeypatch.setenv("PULLBACK_KEY", ALICE)
    with pullback.Client(guarded.url.replace("//", "//me:other@")) as client:
        assert client.ops()
    with pullback.Client(guarded.url, api_key="wrong") as client, pytest.raises(pullback.Unauthorized) as caught:
        client.ops()
    assert "wrong" not in str(caught.value)
    assert ALICE not in str(vars(client))


def test_the_async_client_sends_its_key(guarded):
    async def ask():
        async with pullback.AsyncClient(guarded.url, api_key=BOB) as client:
            assert await client.ops()
            assert [event async for event in client.checks(["square"], orders=[1])]

    asyncio.run(ask())


def test_the_client_waits_for_a_request_with_the_same_key_to_end(guarded):
    with request_in_flight(guarded, ALICE), pullback.Client(guarded.url, api_key=ALICE, retries=0) as client:
        with pytest.raises(pullback.RateLimited) as caught:
            client.ops()
        assert caught.value.retry_after == 1


@pytest.mark.parametrize("key", ["two words", "a\nb", "ä", "\x00"])
def test_the_client_refuses_what_no_header_can_have(key):
    with pytest.raises(pullback.BadArgument, match="expected a key of printable ASCII") as caught:
        pullback.Client(api_key=key)
    assert key not in str(caught.value)


DIGEST = hashlib.sha256(b"a").hexdigest()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("alice", "line 1: expected NAME:SHA256"),
        (f"# a\n\nalice {DIGEST}", "line 3: expected NAME:SHA256"),
        (f"alice:{DIGEST}0", "line 1: expected"),
        (f"{'a' * 65}:{DIGEST}", "line 1: expected"),
        (f"a b:{DIGEST}", "line 1: expected"),
        (f":{DIGEST}", "line 1: expected"),
        (f"a:{DIGEST}\nb:{DIGEST.upper()}", "line 2: expected a name and a key that no other line has"),
        (f"a:{DIGEST}\na:{DIGEST[::-1]}", "line 2: expected a name and a key that no other line has"),
        (f"a:{DIGEST} until=tomorrow", "line 1: until: expected a day, such as 2027-06-30"),
        (f"a:{DIGEST} until=9999-12-31", "line 1: until: expected a day"),
        (f"a:{DIGEST} may=", "line 1: may: expected some of call,check,post,operate"),
        (f"a:{DIGEST} may=call,all", "line 1: may: expected some of call"),
        (f"a:{DIGEST} rate=0/s", "line 1: rate: expected a number of requests and a period"),
        (f"a:{DIGEST} rate=5/week", "line 1: rate: expected"),
        (f"a:{DIGEST} compute=0.5/s", "line 1: compute: expected a number of seconds and a period"),
        (f"a:{DIGEST} may=call may=check", "line 1: expected each of until, may, rate, compute once at most"),
        (f"a:{DIGEST} color=red", "line 1: expected each of until, may, rate"),
        ("\udcff", "expected UTF-8 text"),
        ("#" * (MAX_FILE + 1), f"expected at most {MAX_FILE} bytes"),
        ("\n".join(f"a{n}:{n:064x}" for n in range(MAX_KEYS + 1)), f"expected at most {MAX_KEYS} keys, got 1001"),
    ],
)
def test_an_invalid_file_is_refused(tmp_path, content, message):
    path = tmp_path / "keys"
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(CannotStart, match=f"PULLBACK_KEYS_FILE: .*{message}"):
        KeyFile(path)


def test_a_request_that_begins_anew_is_counted_once(keys_file):
    keys = Keys(keys_file, 100, Accounts(), Buckets())
    grant = keys.grant_of(f"Bearer {KEYS['seldom']}".encode())
    for _ in range(20):
        keys.leave(grant, keys.enter(grant, "call"))
        keys.give_back(grant)
    for _ in range(12):
        keys.enter(grant, "call")
    with pytest.raises(TooManyRequests):
        keys.enter(grant, "call")


def test_keys_that_cannot_be_copied_now_are_copied_later(tmp_path, keys_file, caplog):
    copy = tmp_path / "folder" / "keys"
    keys = KeyFileCopy(keys_file, copy)
    before = copy.read_text()
    copy.unlink()
    copy.parent.rmdir()
    copy.parent.write_text("a file where the folder was")
    keys.refresh()
    keys.refresh()
    assert caplog.text.count("the workers keep the previous keys: cannot copy it: ") == 1
    copy.parent.unlink()
    keys.refresh()
    assert copy.read_text() == before


def test_the_service_does_not_start_without_its_file(start, tmp_path):
    one = start(KEYS_FILE=str(tmp_path / "none"))
    assert one.wait() == 3
    assert one.log_with(f"pullback: PULLBACK_KEYS_FILE: cannot read {tmp_path / 'none'}: No such file")
    assert "Traceback" not in one.log()


def wait_for_status(client: httpx.Client, key: str, status: int) -> None:
    until = time.monotonic() + PATIENCE_S
    while client.get("/v1/ops", headers=bearer(key)).status_code != status:
        assert time.monotonic() < until
        time.sleep(0.05)


def wait_for_log(one, text: str, asking: httpx.Client | None = None) -> str:
    """Return the log once it has a text; requests make the service examine its file."""
    until = time.monotonic() + PATIENCE_S
    while text not in (log := one.log()):
        assert time.monotonic() < until, log
        with one.client() if asking is None else contextlib.nullcontext(asking) as client:
            client.get("/v1/ops")
        time.sleep(0.05)
    return log
