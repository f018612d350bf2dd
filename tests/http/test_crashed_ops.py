"""An op that crashes its process does not run for a while after the restart; a process that is killed blames none."""

import os
import signal
import tempfile
import time
from pathlib import Path

import httpx
import pytest

from tests.conftest import Service
from tests.patience import PATIENCE_S

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[1] / "fleet" / "crashing.py"
CRASH = {"inputs": {"x": 1.0}, "attrs": {"crash": True}}
WHOLE = {"inputs": {"x": 1.0}}
PATH = "/v1/ops/crashing/forward"
GRAPH = {"inputs": ["x"], "nodes": [{"name": "y", "op": "crashing", "inputs": {"x": "x"}}], "outputs": {"y": "y"}}


@pytest.fixture
def settings(tmp_path):
    ops = tmp_path / "ops"
    ops.mkdir()
    (ops / PAGE.name).write_text(PAGE.read_text())
    # An op whose page is newer than its crash is another one.
    os.utime(ops / PAGE.name, (0, 0))
    return {"OPS_PATH": str(ops), "DATA": str(tmp_path / "data"), "CHECK_PROCESSES": "0"}


@pytest.fixture
def start(settings):
    started = list[Service]()

    def service(**more: str) -> Service:
        started.append(Service.forked(log, **settings, **more).wait_until_ready())
        return started[-1]

    with tempfile.TemporaryFile() as log:
        yield service
        for one in started:
            one.close()


def post(service: Service, path: str, body: object) -> httpx.Response:
    return httpx.post(f"{service.url}{path}", json=body, timeout=PATIENCE_S)


def crash(service: Service) -> None:
    with pytest.raises(httpx.TransportError):
        post(service, PATH, CRASH)


def until(condition) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def refused_files(settings) -> list[Path]:
    return [*Path(settings["DATA"]).glob("crashes/*/*.crashed")]


def test_an_op_that_crashed_its_process_does_not_run(start, settings):
    first = start()
    assert post(first, PATH, WHOLE).status_code == 200
    crash(first)
    assert first.wait() == -signal.SIGSEGV
    second = start()
    answer = post(second, PATH, WHOLE)
    assert answer.status_code == 503
    assert "crashing is unavailable for" in answer.json()["detail"]
    assert "SIGSEGV" in answer.json()["detail"]
    assert 0 < int(answer.headers["retry-after"]) <= 600
    graph = post(second, "/v1/graphs", GRAPH).json()["name"]
    assert post(second, f"/v1/ops/{graph}/forward", WHOLE).status_code == 503
    assert post(second, "/v1/ops/square/forward", WHOLE).status_code == 200
    listed = {op["name"]: op for op in httpx.get(f"{second.url}/v1/ops").json()["ops"]}
    assert listed["crashing"]["available"] is False
    assert "SIGSEGV" in listed["crashing"]["reason"]
    assert listed["square"]["available"] is True
    assert httpx.get(f"{second.url}/v1/ops/crashing").json()["available"] is False
    assert "\npullback_ops_quarantined 1.0\n" in httpx.get(f"{second.url}/metrics").text
    assert httpx.get(f"{second.url}/health/ready").status_code == 200
    [file] = refused_files(settings)
    assert second.log_with(f"remove {file} to lift this")
    file.unlink()
    until(lambda: post(second, PATH, WHOLE).status_code == 200)
    assert second.log_with("op crashing is available again")


def test_all_workers_refuse_the_op(start):
    service = start(WORKERS="2")
    until(lambda: len(service.workers()) == 2)
    crash(service)
    # Each connection may reach another worker.
    until(lambda: all(post(service, PATH, WHOLE).status_code == 503 for _ in range(12)))
    assert post(service, "/v1/ops/square/forward", WHOLE).status_code == 200


def test_a_changed_page_is_another_op(start, settings):
    crash(start())
    page = Path(settings["OPS_PATH"], PAGE.name)
    future = time.time() + 100
    os.utime(page, (future, future))
    assert post(start(), PATH, WHOLE).status_code == 200


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_is_killed_blames_no_op(start, settings, number):
    first = start()
    assert post(first, "/v1/ops/square/forward", WHOLE).status_code == 200
    assert first.process.pid
    os.kill(first.process.pid, number)
    first.wait()
    second = start()
    assert post(second, "/v1/ops/square/forward", WHOLE).status_code == 200
    assert refused_files(settings) == []
    if number == signal.SIGKILL:
        second.log_with("was killed while it computed")
    else:
        assert "was killed while it computed" not in second.log()


def test_hostile_files_stop_no_service(start, settings):
    first = start()
    [folder] = Path(settings["DATA"], "crashes").iterdir()
    first.process.kill()
    first.wait()
    os.mkfifo(folder / "1-a.process")
    os.mkfifo(folder / "square.crashed")
    (folder / "2-b.process").write_bytes(os.urandom(1 << 20))
    (folder / "3-c.process").write_bytes(b"")
    (folder / "4-d.process").symlink_to("/dev/zero")
    (folder / "relu.crashed").symlink_to("/dev/zero")
    (folder / "sign.crashed").mkdir()
    with (folder / "5-e.process").open("wb") as file:
        file.truncate(1 << 40)
    service = start()
    for op in ("square", "relu", "sign"):
        assert post(service, f"/v1/ops/{op}/forward", {"inputs": {"x": [1.0]}}).status_code == 200


def test_a_folder_that_others_may_write_is_not_used(start, settings):
    folder = Path(settings["DATA"], "crashes")
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    service = start()
    assert service.log_with("crashes are not noted in")
    assert post(service, "/v1/ops/square/forward", WHOLE).status_code == 200


def test_nothing_is_noted_without_a_quarantine(start, settings):
    crash(start(QUARANTINE_S="0"))
    assert not Path(settings["DATA"], "crashes").exists()
    assert post(start(QUARANTINE_S="0"), PATH, WHOLE).status_code == 200
