"""Quotas: each key may have so many requests, and so many seconds of computing, whichever path or worker answers."""

import fcntl
import os
import re
import shutil
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest

from app.errors import CannotStart, TooManyRequests
from app.http.quotas import SLOTS, Buckets, Quotas
from app.telemetry.accounts import KEPT, NAMED, OTHERS, Accounts
from pullback.keys import line_for, read_grant
from tests.http.conftest import PLUGINS
from tests.http.test_keys import DIALECTS, JSON, REQUEST, SQUARE, bearer
from tests.patience import PATIENCE_S

TERMS = {
    "free": [],
    "counted": ["rate=1000/h", "compute=3600/h"],
    "few": ["rate=3/h"],
    "idle": ["compute=1/h"],
    "worker": ["compute=1/h"],
    "gone": [],
}
KEYS = {name: f"pullback_Of-{name}-0123" for name in TERMS}
SLEEPY, SECONDS = "/v1/ops/sleepy/forward", b'{"inputs":{"x":1.1}}'
LEFT = re.compile(r'"(\w+)";r=(\d+);t=(\d+)')


@pytest.fixture(scope="module")
def keys_file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text("".join(f"{line_for(name, KEYS[name], terms)}\n" for name, terms in TERMS.items()))
    return path


@pytest.fixture(scope="module")
def guarded(start_for_module, keys_file, tmp_path_factory):
    pages = tmp_path_factory.mktemp("pages")
    shutil.copy(PLUGINS / "sleepy.py", pages)
    return start_for_module(KEYS_FILE=str(keys_file), OPS_PATH=str(pages), WARM_UP="false").wait_until_ready()


@pytest.fixture(scope="module")
def anybody(guarded):
    with guarded.client() as one:
        yield one


def by(name: str) -> dict[str, str]:
    return {**JSON, **bearer(KEYS[name])}


def left(answer: httpx.Response) -> dict[str, int]:
    return {name: int(rest) for name, rest, _ in LEFT.findall(answer.headers["ratelimit"])}


def total(text: str, name: str, labels: str = "") -> float:
    found = re.findall(rf"^{name}_total\{{([^}}]*)\}} (\S+)$", text, re.MULTILINE)
    return sum(float(value) for found_labels, value in found if labels in found_labels)


def test_both_paths_count_requests_and_say_what_is_left(anybody):
    bodies = [f'{{"inputs":{{"x":[1,{x}]}}}}' for x in range(40)]
    answers = [anybody.post(SQUARE, content=body, headers=by("counted")) for body in bodies]
    assert [answer.status_code for answer in answers] == [200] * 40
    rests = [left(answer)["requests"] for answer in answers]
    assert rests == [*range(rests[0], rests[0] - 40, -1)]
    policy = '"requests";q=1000;w=3600, "compute";q=3600;w=3600;qu="compute-seconds"'
    assert {answer.headers["ratelimit-policy"] for answer in answers} == {policy}
    # Another key may use the template that this one has made, and has no quota.
    assert "ratelimit" not in anybody.post(SQUARE, content=bodies[0], headers=by("free")).headers
    metrics = anybody.get("/metrics", headers=by("free")).text
    assert re.search("^pullback_express_requests_total [1-9]", metrics, re.MULTILINE)


def test_a_refused_request_is_not_counted(anybody):
    answers = [anybody.get("/v1/ops/square", headers=by("few")) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200] * 3 + [429] * 3
    assert [left(answer)["requests"] for answer in answers] == [2, 1, 0, 0, 0, 0]
    refused = answers[-1]
    assert 1100 < int(refused.headers["retry-after"]) <= 1200
    assert refused.headers["ratelimit"].endswith(f";t={refused.headers['retry-after']}")
    text = anybody.get("/metrics", headers=by("free")).text
    assert total(text, "pullback_key_refusals", 'key="few",reason="rate"') == 3
    assert total(text, "pullback_key_requests", 'key="few",status="429"') == 3


def test_every_second_of_computing_is_that_of_a_key(anybody):
    """Calls inline and on threads, shared ones, large ones, checks and streams of checks."""
    checks = {"ops": ["sign"], "orders": [1], "modes": ["eager"]}
    for path, body in (
        ("/v1/ops/square/check", {"orders": [1], "modes": ["eager"], "checks": ["derivative"]}),
        ("/v1/checks", checks),
        ("/v1/ops/sleepy/forward", {"inputs": {"x": 0.01}}),
        ("/v1/ops/matmul/gradients", {"inputs": {"a": [[1.0] * 200] * 200, "b": [[1.0] * 200] * 200}}),
    ):
        assert anybody.post(path, json=body, headers=by("free")).status_code == 200
    with ThreadPoolExecutor(8) as threads:
        sent = [
            threads.submit(anybody.post, SQUARE, content=REQUEST, headers=by(name)) for name in ("free", "counted") * 20
        ]
        assert all(each.result().status_code == 200 for each in sent)
    text = anybody.get("/metrics", headers=by("free")).text
    for stage in ("compute", "queue"):
        counted = total(text, f"pullback_{stage}_seconds")
        assert counted > 0
        assert total(text, f"pullback_key_{stage}_seconds") == pytest.approx(counted, rel=1e-6)
        assert total(text, f"pullback_key_{stage}_seconds", 'key="counted"') > 0


def test_a_key_that_has_computed_enough_waits_in_every_protocol(anybody):
    assert left(anybody.get("/v1/ops", headers=by("idle"))) == {"compute": 1}
    answer = anybody.post(SLEEPY, content=SECONDS, headers=by("idle"))
    assert left(answer) == {"compute": 0}
    for path, text in DIALECTS.items():
        answer = anybody.post(path, json={}, headers=by("idle"))
        assert answer.status_code == 429
        assert text(answer.json()) == "expected at most 1 seconds of computing in 3600 s with the key idle, got more"
        assert int(answer.headers["retry-after"]) > 0
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "list"}}
    assert anybody.post("/mcp", json=call, headers=by("idle")).status_code == 429


def test_a_job_pays_for_what_it_computes(anybody):
    deferred = {**by("worker"), "prefer": "respond-async"}
    job = anybody.post(SLEEPY, content=SECONDS, headers=deferred).headers["location"]
    until = time.monotonic() + PATIENCE_S
    while (answer := anybody.get(job, headers=by("worker"))).status_code == 200:
        assert time.monotonic() < until, answer.text
        time.sleep(0.05)
    assert answer.status_code == 429
    assert total(anybody.get("/metrics", headers=by("free")).text, "pullback_key_compute_seconds", 'key="worker"') > 1


def test_two_authorization_headers_are_refused(guarded):
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=PATIENCE_S) as sock:
        keys = "".join(f"authorization: Bearer {KEYS[name]}\r\n" for name in ("free", "counted"))
        sock.sendall(f"GET /v1/ops HTTP/1.1\r\nhost: localhost\r\n{keys}\r\n".encode())
        assert b"expected one Authorization header, got more" in sock.recv(2000)


def test_no_template_answers_a_key_that_is_removed(guarded, keys_file, anybody):
    def ask(x: int) -> int:
        return anybody.post(SQUARE, content=f'{{"inputs":{{"x":[{x}]}}}}', headers=by("gone")).status_code

    assert {ask(x) for x in range(20)} == {200}
    before = keys_file.read_text()
    keys_file.write_text(before.replace("gone:", "# gone:"))
    until = time.monotonic() + PATIENCE_S
    while (status := ask(1)) == 200:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert status == 401
    # Nor any of those that come together.
    head = f"POST {SQUARE} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEYS['gone']}\r\n"
    one = f"{head}content-type: application/json\r\ncontent-length: {len(REQUEST)}\r\n\r\n".encode() + REQUEST
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=PATIENCE_S) as sock:
        sock.sendall(one * 5)
        received = b""
        while received.count(b"HTTP/1.1 ") < 5 and (data := sock.recv(10000)):
            received += data
    assert received.count(b"HTTP/1.1 401 ") >= 1
    assert b"HTTP/1.1 200 " not in received
    keys_file.write_text(before)


def test_workers_share_the_quotas(start, tmp_path):
    path = tmp_path / "keys"
    path.write_text(line_for("few", KEYS["few"], ["rate=20/h"]) + "\n")
    one = start(KEYS_FILE=str(path), WORKERS="2", WARM_UP="false").wait_until_ready()
    statuses = list[int]()
    for x in range(40):
        with one.client() as client:
            body = f'{{"inputs":{{"x":[{x}]}}}}'
            statuses.append(client.post(SQUARE, content=body, headers={**by("few"), "connection": "close"}).status_code)
    assert statuses == [200] * 20 + [429] * 20


def test_buckets_in_one_file_are_one(tmp_path):
    here, there = Buckets(tmp_path / "buckets"), Buckets(tmp_path / "buckets")
    assert here.use("a", 8.0, 10.0) == 0.0
    assert there.use("b", 8.0, 10.0) == 0.0
    assert there.used_s("a") == pytest.approx(8.0, abs=0.5)
    assert there.use("a", 8.0, 10.0) == pytest.approx(6.0, abs=0.5)
    there.give_back("a", 8.0)
    assert here.used_s("a") == 0.0


def test_a_process_that_is_stopped_with_the_lock_stops_no_other(tmp_path):
    buckets = Buckets(tmp_path / "buckets")
    descriptor = os.open(tmp_path / "buckets", os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert buckets.use("a", 8.0, 10.0) == 0.0
    assert buckets.use("a", 8.0, 10.0) > 0.0
    os.close(descriptor)


def test_new_buckets_take_the_place_of_full_ones():
    buckets = Buckets()
    assert buckets.use("busy", 1000.0, 3600.0) == 0.0
    for number in range(2 * SLOTS):
        assert buckets.use(f"other {number}", 0.0, 1.0) == 0.0
    assert buckets.used_s("busy") == pytest.approx(1000.0, abs=60.0)


def test_a_bucket_whose_slot_is_taken_is_not_that_of_another(tmp_path):
    here, there = Buckets(tmp_path / "buckets"), Buckets(tmp_path / "buckets")
    assert here.use("idle", 0.0, 1.0) == 0.0
    for number in range(SLOTS):
        assert there.use(f"busy {number}", 1000.0, 3600.0) == 0.0
    assert here.used_s("idle") == 0.0


def test_no_room_for_the_buckets_is_an_error(tmp_path):
    with pytest.raises(CannotStart, match=r"cannot keep the limits of keys in .*: No such file"):
        Buckets(tmp_path / "none" / "buckets")


def test_what_is_overdrawn_is_paid_first():
    quotas, accounts = Quotas(Buckets()), Accounts()
    grant, account = read_grant(f"a:{'0' * 64} compute=60/min"), accounts.of("a")
    quotas.take(grant, account)
    account.add(1.0, 90.0)
    with pytest.raises(TooManyRequests) as caught:
        quotas.take(grant, account)
    assert 29 <= int(caught.value.headers["Retry-After"]) <= 30
    assert quotas.headers(grant)[1] == (b"ratelimit", b'"compute";r=0;t=30')


def test_labels_are_bounded():
    accounts = Accounts()
    for number in range(2 * KEPT):
        accounts.of(f"key{number}").add(0.0, 1.0)
        accounts.of(f"key{number}").owed()
    assert len(accounts.usages) <= NAMED + 2
    assert accounts.usages["key0"].compute_s == 1.0
    assert np.isclose(sum(usage.compute_s for usage in accounts.usages.values()), 2 * KEPT)
    assert accounts.usages[OTHERS].compute_s > KEPT
