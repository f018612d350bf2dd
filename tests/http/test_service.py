"""The service as a whole: probes during work, full queues, deadlines, disconnects, and plug-ins that do not load."""

import base64
import concurrent.futures
import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from app.errors import CannotStart
from app.main import create_app
from app.settings import Settings
from tests.http.native_client import JSON, ask, data, post, problem
from tests.patience import PATIENCE_S

ENDLESS = {"inputs": {"x": [1.0], "steps": 2_000_000_000}}
AT_ONCE_S = 0.1
# A shared machine may pause a process for a moment; delays of the service itself occur every time.
ATTEMPTS = 10
# How many probes say something about a request.
ENOUGH = 4


@contextlib.contextmanager
def background(call) -> Iterator[concurrent.futures.Future]:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        yield pool.submit(call)


def http_connection(port: int) -> contextlib.closing[http.client.HTTPConnection]:
    return contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S))


def probes_during(port: int, path: str, body: bytes, headers: dict[str, str]) -> tuple[list[float], float, int]:
    """Return the response times of /health/live during a request, and the time and the status of that request.

    The request uses a cheap client, because it shares this process with the probing one.
    """

    def request() -> int:
        with http_connection(port) as connection:
            connection.request("POST", path, body, {**JSON, **headers})
            response = connection.getresponse()
            response.read()
            return response.status

    probes, started = list[float](), time.perf_counter()
    with http_connection(port) as connection, background(request) as running:
        while not running.done():
            began = time.perf_counter()
            connection.request("GET", "/health/live")
            assert connection.getresponse().read() == b'{"status":"live"}'
            probes.append(time.perf_counter() - began)
            time.sleep(0.005)
        status = running.result()
    return probes, time.perf_counter() - started, status


def sleep(client: httpx.Client) -> httpx.Response:
    return post(client, "sleepy", "forward", inputs={"x": 1.5})


def zeros(*shape: int) -> dict[str, Any]:
    text = base64.b64encode(np.zeros(shape, "<f4").tobytes()).decode()
    return {"dtype": "float32", "shape": list(shape), "base64": text}


LONG = {
    "a computation of 5 s": ("endless/forward", json.dumps(ENDLESS), {"pullback-deadline-ms": "5000"}, 504),
    "a sleep": ("sleepy/forward", '{"inputs":{"x":1}}', {}, 200),
    "a large JSON body": ("square/forward", '{"inputs":{"x":[' + "0.123456789," * 400_000 + "1]}}", {}, 200),
    "a large base64 body": ("square/forward", json.dumps({"inputs": {"x": zeros(2_000_000)}}), {}, 200),
    "a large matrix": ("safe_norm/hessian", json.dumps({"inputs": {"x": zeros(1500)}}), {}, 200),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_probes_are_answered_during_work(plugged_service, name: str):
    to, body, headers, wanted = LONG[name]
    found = []
    for _ in range(ATTEMPTS):
        probes, took, status = probes_during(plugged_service.port, f"/v1/ops/{to}", body.encode(), headers)
        assert status == wanted
        found.append((len(probes), max(probes, default=0.0), took))
        # Work that runs on the loop delays a probe by most of its time; other processes delay it, too, but less.
        if len(probes) >= ENOUGH and max(probes) < max(AT_ONCE_S, took / 5):
            return
    raise AssertionError(f"answers of /health/live, the slowest, and the time of the work: {found}")


# In eager mode a tf.while_loop is a Python loop, which cannot be cancelled.
@pytest.mark.parametrize("mode", ["graph", "v1"])
def test_work_is_cancelled_at_its_deadline(plugged: httpx.Client, mode: str):
    assert ask(plugged, "endless", "forward", inputs={"x": [1], "steps": 3}, mode=mode)["outputs"]["y"]["data"] == [1]
    began = time.monotonic()
    headers = {**JSON, "pullback-deadline-ms": "700"}
    response = plugged.post("/v1/ops/endless/forward", content=json.dumps({**ENDLESS, "mode": mode}), headers=headers)
    # The timers of an event loop count in milliseconds, and may be early by one.
    assert 0.699 <= time.monotonic() - began < 2
    assert "deadline" in problem(response, 504)["detail"]
    answer = ask(plugged, "endless", "forward", inputs={"x": [2], "steps": 3}, mode=mode)
    assert answer["outputs"]["y"]["data"] == [2]
    # Far sooner than two billion products would take.
    assert time.monotonic() - began < 5
    assert plugged.get("/health/ready").status_code == 200


def test_cancelling_one_slot_leaves_the_other_running(plugged: httpx.Client, plugged_service):
    """By default, TensorFlow has one cancellation manager for all threads."""
    numbers = [1.0] * 30_000  # more than the short slot accepts
    headers = {**JSON, "pullback-deadline-ms": "1500"}
    content = json.dumps({"inputs": {"x": numbers, "steps": 2_000_000_000}})
    with plugged_service.client() as other:
        other.post("/v1/ops/endless/forward", content=json.dumps({"inputs": {"x": numbers, "steps": 1}}), headers=JSON)
        with background(lambda: other.post("/v1/ops/endless/forward", content=content, headers=headers)) as running:
            while not running.done():
                assert ask(plugged, "square", "forward", inputs={"x": 3})["outputs"]["y"]["data"] == 9
                problem(post(plugged, "positive", "forward", inputs={"x": [-1]}), 422)
            problem(running.result(), 504)
        began = time.monotonic()
        answer = ask(other, "endless", "forward", inputs={"x": numbers, "steps": 1})
    assert answer["outputs"]["y"]["data"] == numbers
    assert time.monotonic() - began < 5


def test_queued_work_is_dropped_at_its_deadline(plugged_service):
    with plugged_service.client() as one, plugged_service.client() as other:
        with background(lambda: sleep(one)) as running:
            time.sleep(0.3)
            began = time.monotonic()
            headers = {**JSON, "pullback-deadline-ms": "300"}
            late = other.post("/v1/ops/sleepy/forward", content='{"inputs":{"x":30}}', headers=headers)
            assert time.monotonic() - began < 1
            problem(late, 504)
            assert running.result().json()["outputs"]["y"]["data"] == 1.5
        # The sleep of 30 seconds never began.
        assert ask(other, "square", "forward", inputs={"x": 3})["outputs"]["y"]["data"] == 9
        assert time.monotonic() - began < 10


def test_a_disconnect_cancels_the_work(plugged_service):
    body = json.dumps(ENDLESS).encode()
    head = b"POST /v1/ops/endless/forward HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    request = head + b"content-length: %d\r\n\r\n" % len(body) + body
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", plugged_service.port), timeout=PATIENCE_S) as sock:
            sock.sendall(request)
            time.sleep(0.2)
    began = time.monotonic()
    with plugged_service.client() as client:
        assert ask(client, "square", "forward", inputs={"x": [1, 2]})["outputs"]["y"]["data"] == [1, 4]
    assert time.monotonic() - began < 5


def test_concurrent_requests_get_their_own_responses(service):
    """200 requests over 16 connections, no two alike."""
    local = threading.local()

    def one(i: int) -> bool:
        if not hasattr(local, "client"):
            local.client = stack.enter_context(service.client())
        size = 1 + i % 7
        x = [i + 0.5 * k for k in range(size)]
        if i % 2:
            answer = ask(local.client, "square", "vjp", inputs={"x": x}, outputs=True)
            wanted = {"outputs": {"y": [a * a for a in x]}, "gradients": {"x": [2 * a for a in x]}}
        else:
            attrs = {"strength": i / 8}
            answer = ask(local.client, "gradient_reversal", "vjp", inputs={"x": x}, attrs=attrs)
            wanted = {"gradients": {"x": [-i / 8] * size}}
        return data(answer) == wanted

    with contextlib.ExitStack() as stack, concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(pool.map(one, range(200)))


def test_one_bad_request_among_many_fails_alone(client: httpx.Client):
    def one(i: int) -> int:
        return post(client, "square", "vjp", inputs={"x": [i, None if i % 5 == 0 else 1]}).status_code

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, range(40))) == [422 if i % 5 == 0 else 200 for i in range(40)]


def test_a_full_queue_is_503(serve, plugin_folders):
    one = serve(OPS_PATH=plugin_folders, QUEUE="1")

    def sleep_alone(_: int) -> httpx.Response:
        with one.client() as client:
            return sleep(client)

    with one.client() as client:
        post(client, "sleepy", "forward", inputs={"x": 0})
        with concurrent.futures.ThreadPoolExecutor(5) as pool:
            first = pool.submit(sleep_alone, 0)
            time.sleep(0.4)
            others = list(pool.map(sleep_alone, range(1, 5)))
        assert first.result().status_code == 200
        assert sorted(response.status_code for response in others) == [200, 503, 503, 503]
        for response in others:
            if response.status_code == 503:
                assert "waiting" in problem(response, 503)["detail"]
                assert int(response.headers["retry-after"]) >= 1
        assert ask(client, "square", "forward", inputs={"x": 3})["outputs"]["y"]["data"] == 9


def test_the_readiness_document(client: httpx.Client):
    ready = client.get("/health/ready").json()
    assert set(ready) == {
        "status",
        "tensorflow",
        "devices",
        "default_device",
        "machine",
        "ops",
        "unavailable",
        "traces",
        "compiled",
    }
    assert ready["status"] == "ready"
    assert ready["tensorflow"].startswith("2.")
    assert "cpu" in ready["devices"]
    assert ready["default_device"] in ready["devices"]
    assert ready["ops"] == len(client.get("/v1/ops").json()["ops"])
    assert ready["unavailable"] == []
    found = {part["name"]: part for part in ready["machine"]}
    assert set(found) >= {"tensorflow", "cuda", "gpu memory", "xla", "ops", "native ops"}
    assert found["native ops"]["found"] == "relu, roi_pool, zero_out, zero_out_indexed"
    assert all(part["status"] in ("ok", "missing", "off") for part in ready["machine"])


def test_a_broken_plug_in_is_reported_and_the_rest_is_served(plugged: httpx.Client):
    response = plugged.get("/health/ready")
    assert response.status_code == 200
    [unavailable] = response.json()["unavailable"]
    assert set(unavailable) == {"op", "reason"}
    assert unavailable["op"] == "broken"
    assert "nothing_of_this_name" in unavailable["reason"]
    ops = {op["name"]: op for op in plugged.get("/v1/ops").json()["ops"]}
    assert set(ops["broken"]) == {"name", "summary", "mechanism", "claim", "available", "group", "reason"}
    assert set(ops["squares"]) == {"name", "summary", "mechanism", "claim", "available", "group"}
    assert ops["broken"]["available"] is False
    assert ops["broken"]["reason"] == unavailable["reason"]
    assert ops["squares"]["available"] is True
    assert response.json()["ops"] == len(ops) - 1


def test_strict_mode_refuses_to_start_with_one_line(start, plugin_folders):
    one = start(OPS_PATH=plugin_folders, STRICT="1")
    assert one.wait() == 3
    [line] = [line for line in one.log().splitlines() if line.startswith("pullback: ")]
    for word in ("PULLBACK_STRICT", "broken", "nothing_of_this_name"):
        assert word in line
    assert one.line() == "", "it said that it is ready"


def test_a_missing_folder_prevents_the_start(tmp_path):
    with pytest.raises(CannotStart, match="folder") as refused:
        create_app(Settings(ops_path=(tmp_path / "not_there",)))
    assert str(tmp_path / "not_there") in str(refused.value)
