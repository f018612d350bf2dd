"""A service on a thread: it has exactly the given settings and leaves nothing behind when closed."""

import gc
import socket
import tempfile
import threading

import httpx
import pytest

from app.errors import CannotStart
from app.settings import Settings
from tests.http.native_client import ask, problem
from tests.threaded_service import ThreadedService, settings_of


def listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def test_a_service_answers_until_it_is_closed():
    before = set(threading.enumerate())
    one = ThreadedService()
    with one.client() as client:
        assert ask(client, "square", "forward", inputs={"x": 3})["outputs"]["y"]["data"] == 9
        assert client.get("/docs").status_code == 200
        assert {"watchdog", "scheduler-short", "scheduler-long"} < {thread.name for thread in one.threads}
        one.close()
        with pytest.raises(httpx.ConnectError):
            client.get("/health/live", headers={"connection": "close"})
    # The thread of the log belongs to the process.
    assert {thread for thread in threading.enumerate() if thread.name != "log"} <= before
    assert not listens(one.port)


@pytest.mark.slow
def test_simultaneous_services_have_separate_settings(serve):
    small, large = serve(MAX_JSON_MB="1"), serve(METRICS="0")
    body = b" " * (1 << 20) + b'{"inputs": {"x": 3}}'
    headers = {"content-type": "application/json"}
    with small.client() as one, large.client() as other:
        problem(one.post("/v1/ops/square/forward", content=body, headers=headers), 413)
        assert other.post("/v1/ops/square/forward", content=body, headers=headers).status_code == 200
        assert one.get("/metrics").status_code == 200
        problem(other.get("/metrics"), 404)


def test_the_environment_does_not_change_the_settings(monkeypatch):
    monkeypatch.setenv("PULLBACK_QUEUE", "7")
    assert Settings().queue == 7
    assert settings_of().queue == 1024
    assert settings_of(QUEUE="3").queue == 3
    assert settings_of(WARM_UP="1").warm_up
    assert not settings_of().warm_up


@pytest.mark.slow
def test_garbage_is_still_collected(serve):
    serve()
    assert gc.get_freeze_count() == 0


def test_what_clients_leave_behind_goes_with_a_service_without_a_folder(serve, monkeypatch, tmp_path):
    graph = {"inputs": ["x"], "nodes": [{"name": "y", "op": "square", "inputs": ["x"]}], "outputs": {"y": "y"}}
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    one = serve(JOBS="2")
    with one.client() as client:
        assert client.post("/v1/graphs", json=graph).status_code == 201
        assert client.post("/v1/ops/square/check", json={}).status_code == 200
    [folder] = tmp_path.glob("pullback-*")
    assert {path.name for path in folder.iterdir()} == {"graphs", "jobs", "verdicts"}
    one.close()
    assert not folder.exists()


def test_a_failed_start_raises(tmp_path):
    before = set(threading.enumerate())
    with pytest.raises(CannotStart, match="folder"):
        ThreadedService(OPS_PATH=str(tmp_path / "not_there"))
    # The thread of the log belongs to the process.
    assert {thread for thread in threading.enumerate() if thread.name != "log"} <= before
