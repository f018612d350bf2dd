"""``python -m app``: what it prints, how it refuses to start, and how it stops."""

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest
from uvicorn import Config

from app.__main__ import serve
from app.http.listener import listen
from app.http.server import OneServer
from app.settings import Settings
from tests.conftest import ROOT
from tests.patience import PATIENCE_S, PAUSE_S

pytestmark = pytest.mark.slow

SQUARE = "/v1/ops/square/forward"
REQUEST = b'{"inputs":{"x":[1,2]}}'
JSON = {"content-type": "application/json"}
HEAD = (
    f"POST {SQUARE} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    f"expect: 100-continue\r\ncontent-length: {len(REQUEST)}\r\n\r\n"
).encode()
# Several workers are several new interpreters, which take seconds to start.
TWO = pytest.param("2", marks=pytest.mark.thorough)


def status_of(one, path: str = "/health/ready") -> int:
    """Return the status of a path, requested on a new connection; 0 if nothing listens any more."""
    with contextlib.suppress(httpx.ConnectError), one.client() as client:
        return client.get(path).status_code
    return 0


def wait_for_status(one, status: int) -> None:
    """Send one request at a time until the service answers with this status."""
    until = time.monotonic() + PATIENCE_S
    while status_of(one) != status:
        assert time.monotonic() < until, one.log()
        time.sleep(PAUSE_S)


@contextlib.contextmanager
def request_in_flight(one):
    """A request in flight: the service has requested its body."""
    with socket.create_connection(("127.0.0.1", one.port), timeout=PATIENCE_S) as sock:
        sock.sendall(HEAD)
        assert sock.recv(100).startswith(b"HTTP/1.1 100 ")
        yield sock


def finish(sock: socket.socket, rest: bytes = REQUEST) -> bytes:
    """Send the rest of a request; return all that arrives until the service closes the connection."""
    sock.sendall(rest)
    data = b""
    while piece := sock.recv(1 << 16):
        data += piece
    return data


def own_lines(one) -> list[str]:
    """Return the service's log without the warm-up and without TensorFlow's first lines on stderr."""
    foreign = re.compile(r"WARNING: All log messages before absl::InitializeLog|[IW]\d{4} |.*\bwarmed up \d")
    return [line for line in one.log().splitlines() if not foreign.match(line)]


def test_the_ready_lines_show_the_url_and_an_example(service):
    assert service.port > 0
    found = re.fullmatch(r"Pullback is ready on (\S+) \(docs: \1/docs\)\n", service.printed[0])
    assert found
    if len(service.printed) == 1:
        service.line()
    name, command = service.printed[1].split(" ", 1)
    assert name == "Try:"
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    answer = json.loads(done.stdout)
    assert answer["outputs"]["y"]["data"] == pytest.approx([0.6931472, 100.0])
    first, second = (order["x"]["data"] for order in answer["gradients"])
    assert first == pytest.approx([0.5, 1.0])
    assert second == pytest.approx([0.25, 0.0])


def test_headers_do_not_name_the_server(client):
    response = client.get("/health/live")
    assert response.json()["status"] == "live"
    assert "server" not in response.headers
    assert "date" in response.headers
    assert response.headers["x-request-id"]


def test_a_port_in_use_is_one_line_and_exit_1(launch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        one = launch(PORT=str(port))
        assert one.wait() == 1
    where = f"127.0.0.1:{port} (PULLBACK_HOST, PULLBACK_PORT)"
    why = "another process listens there, or one that was stopped still answers its last requests (PULLBACK_GRACE_S)"
    assert one.log() == f"pullback: cannot listen on {where}: Address already in use: {why}\n"


def test_an_invalid_host_is_one_line_and_exit_1(launch):
    one = launch(HOST="192.0.2.1")
    assert one.wait() == 1
    [line] = one.log().splitlines()
    assert line.startswith("pullback: cannot listen on 192.0.2.1:0 ")


def test_invalid_settings_are_a_line_each_and_exit_2(launch):
    wrong = {"DEADLINE_S": "0", "LOG": "xml", "PORT": "99999", "STRICT": "perhaps", "WORKERS": "two"}
    one = launch(**wrong)
    assert one.wait() == 2
    lines = sorted(one.log().splitlines())
    assert len(lines) == len(wrong)
    for line, (name, value) in zip(lines, wrong.items(), strict=True):
        assert re.fullmatch(rf"pullback: PULLBACK_{name}: expected .+, got the string \"{value}\"", line)
    assert "expected less than or equal to 65535, got" in lines[2]
    assert "expected 'text' or 'json', got" in lines[1]


def test_an_unknown_setting_is_a_warning_with_similar_names(start, launch):
    one = launch(MAX_JSN_MB="1", PORT="x")
    assert one.wait() == 2
    one = start(MAX_JSN_MB="1")
    one.wait_until_ready()
    [line] = own_lines(one)
    assert line.startswith("pullback: warning: PULLBACK_MAX_JSN_MB is not a setting and has no effect; ")
    assert "PULLBACK_MAX_JSON_MB" in line


@pytest.mark.slow
def test_sigterm_drains_and_finishes_requests_in_flight(launch):
    one = launch(DRAIN_S="5")
    one.wait_until_ready()
    assert status_of(one) == 200
    with request_in_flight(one) as sock:
        began = time.monotonic()
        one.process.send_signal(signal.SIGTERM)
        wait_for_status(one, 503)
        with one.client() as client:
            answer = client.post(SQUARE, content=REQUEST, headers=JSON)
            assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        assert status_of(one, "/health/live") == 200
        while status_of(one):
            assert time.monotonic() < began + PATIENCE_S
            time.sleep(PAUSE_S)
        assert time.monotonic() - began >= 5
        assert b"HTTP/1.1 200 " in finish(sock)
    assert one.wait() == 0
    assert one.log_with("draining for 5 s, 1 requests in flight")
    # That of the client, which was answered meanwhile, and that which was in flight.
    assert one.log().splitlines()[-1].endswith(" INFO stopped, 2 requests finished, 0 cut off")
    assert "Traceback" not in one.log()


def test_a_second_sigterm_does_not_wait(start):
    one = start(DRAIN_S="300")
    one.wait_until_ready()
    one.process.send_signal(signal.SIGTERM)
    wait_for_status(one, 503)
    one.process.send_signal(signal.SIGTERM)
    assert one.wait() == 0


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", TWO])
def test_ctrl_c_does_not_drain(launch, workers):
    one = launch(DRAIN_S="300", WORKERS=workers)
    one.wait_until_ready()
    os.killpg(one.process.pid, signal.SIGINT)
    assert one.wait() == 0
    assert own_lines(one) == []


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_early_sigterm_stops_it(launch, workers):
    one = launch(DRAIN_S="300", WORKERS=workers)
    one.process.send_signal(signal.SIGTERM)
    assert one.wait() in (0, -signal.SIGTERM)
    assert one.line() == ""


def test_requests_unfinished_after_the_grace_period_get_an_error(start):
    one = start(GRACE_S="1")
    one.wait_until_ready()
    with request_in_flight(one) as sock:
        one.process.send_signal(signal.SIGTERM)
        data = b""
        while piece := sock.recv(1 << 16):
            data += piece
    assert b"HTTP/1.1 503 " in data
    assert b"retry-after: 1" in data
    assert one.wait() == 0
    assert "stopped, 0 requests finished, 1 cut off" in one.log()
    assert "Traceback" not in one.log()


def test_a_json_log_is_json_lines(start):
    one = start(LOG="json")
    one.wait_until_ready()
    with one.client() as client:
        client.post(SQUARE, content=REQUEST, headers=JSON)
        client.get("/no/such")
    one.process.send_signal(signal.SIGTERM)
    assert one.wait() == 0
    lines = [json.loads(line) for line in own_lines(one)]
    assert [line["status"] for line in lines if "status" in line] == [200, 404]
    records = [line for line in lines if "level" in line]
    assert [line["level"] for line in records] == ["info", "info"]
    draining, stopped = (line["message"] for line in records)
    assert draining.startswith("draining ")
    assert stopped == "stopped, 0 requests finished, 0 cut off"
    while one.line():
        pass
    printed = [json.loads(line) for line in one.printed if line]
    assert [set(line) for line in printed] == [set(records[0])] * 2
    assert [line["message"].split()[0] for line in printed] == ["Pullback", "Try:"]


@pytest.mark.slow
def test_workers_are_announced_once_then_replaced_and_drained(launch):
    one = launch(WORKERS="2", DRAIN_S="2")
    one.wait_until_ready()
    first, second = one.workers()
    os.kill(first, signal.SIGKILL)
    until = time.monotonic() + PATIENCE_S
    while len(set(one.workers()) - {first}) < 2:
        assert time.monotonic() < until
        assert status_of(one) == 200
        time.sleep(PAUSE_S)
    assert second in one.workers()
    assert status_of(one) == 200
    one.process.send_signal(signal.SIGTERM)
    assert one.wait() == 0
    assert one.line().startswith("Try: ")
    assert one.line() == ""
    assert one.log().count("draining for 2 s") in (1, 2)


@pytest.mark.thorough
def test_workers_stop_faster_on_a_second_signal(launch):
    for sent in (signal.SIGTERM, signal.SIGINT):
        one = launch(WORKERS="2", DRAIN_S="300")
        one.wait_until_ready()
        one.process.send_signal(sent)
        if sent == signal.SIGTERM:
            wait_for_status(one, 503)
            one.process.send_signal(signal.SIGTERM)
        assert one.wait() == 0


@pytest.mark.parametrize("workers", ["1", TWO])
def test_an_application_that_cannot_start_is_exit_3(start, workers, tmp_path):
    (tmp_path / "broken.py").write_text("raise ValueError('a broken op')\n", encoding="ascii")
    one = start(WORKERS=workers, OPS_PATH=str(tmp_path), STRICT="1")
    assert one.wait() == 3
    assert one.log_with("broken")


@pytest.mark.parametrize(
    ("host", "has_keys", "count"),
    [("0.0.0.0", False, 1), ("0.0.0.0", True, 0), ("", False, 1), ("127.0.0.1", False, 0)],
)
def test_an_open_address_without_keys_is_warned_of_in_one_line(host, has_keys, count, *, tmp_path, monkeypatch, caplog):
    """The test listens on loopback only, and the server does not run."""
    monkeypatch.setattr(OneServer, "run", lambda server, sockets: None)
    monkeypatch.setattr(Config, "configure_logging", lambda config: None)
    (tmp_path / "keys").write_text("")
    keys = {"keys_file": tmp_path / "keys"} if has_keys else {}
    with contextlib.closing(listen("127.0.0.1", 0)) as listener:
        assert serve(Settings(host=host, check_processes=0, jobs=0, **keys), listener) == 0
    found = [record.getMessage() for record in caplog.records if record.name == "pullback"]
    assert len(found) == count
    assert all(f"PULLBACK_HOST is {host or 'empty'}, so other machines may connect" in line for line in found)


def test_settings_are_read_before_tensorflow_is_imported():
    """Its import takes seconds: an invalid setting is reported before."""
    code = "import sys, app.__main__; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
