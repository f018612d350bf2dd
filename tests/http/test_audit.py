"""The audit log: a line for each change of state, and a bounded number for refused keys; it never stops a request."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from app.http.audit import REFUSALS
from app.telemetry.audit import AuditFile
from pullback.keys import line_for
from tests.http.test_keys import JSON, REQUEST, SQUARE, bearer, wait_for_status
from tests.patience import PATIENCE_S

KEYS = {name: f"pullback_Of-{name}-0123" for name in ("alice", "caller", "past")}
LINES = [
    line_for("alice", KEYS["alice"]),
    line_for("caller", KEYS["caller"], ["may=call"]),
    line_for("past", KEYS["past"], ["until=2020-02-29"]),
]
GRAPH = {
    "inputs": ["x"],
    "nodes": [{"name": "y", "op": "square", "inputs": {"x": "x"}}],
    "outputs": {"y": "y"},
}
CHECK = {"orders": [1], "modes": ["eager"], "checks": ["derivative"]}
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.jsonl"


@pytest.fixture(scope="module")
def keys_file(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text("\n".join(LINES))
    return file


@pytest.fixture(scope="module")
def anybody(start_for_module, path, keys_file):
    one = start_for_module(AUDIT=str(path), KEYS_FILE=str(keys_file), WARM_UP="false").wait_until_ready()
    with one.client() as client:
        yield client


def by(name: str, **more: str) -> dict[str, str]:
    return {**JSON, **bearer(KEYS[name]), **more}


def lines(path: Path, count: int, **wanted: Any) -> list[dict[str, Any]]:
    """Return the lines with these fields, once there are so many."""
    until = time.monotonic() + PATIENCE_S
    while True:
        every = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        found = [line for line in every if wanted.items() <= line.items()]
        if len(found) >= count:
            return found
        assert time.monotonic() < until, every
        time.sleep(0.02)


def test_each_change_has_a_line_and_nothing_else_has(anybody, path, keys_file):
    parent = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
    for x in range(10):
        anybody.post(SQUARE, content=f'{{"inputs":{{"x":[{x}]}}}}', headers=by("alice"))
    anybody.get("/v1/ops", headers=by("alice"))
    made = anybody.post("/v1/graphs", json=GRAPH, headers=by("alice", **parent))
    assert anybody.post("/v1/graphs", json={}, headers=by("alice")).status_code == 422
    job = anybody.post(SQUARE, content=REQUEST, headers=by("alice", prefer="respond-async")).headers["location"]
    anybody.delete(job, headers=by("alice"))
    assert anybody.post("/v1/ops/square/check", json=CHECK, headers=by("alice")).status_code == 200
    call = {"name": "check", "arguments": {"op": "none"}}
    anybody.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}, headers=by("alice"))
    anybody.put("/v1/ops/square/parameters", content=b"x", headers=by("alice"))
    found = lines(path, 7, key="alice")
    assert [(line["event"], line["result"]) for line in found] == [
        *(("post_graph", "done"), ("post_graph", "failed"), ("start_job", "done"), ("end_job", "done")),
        *(("check", "done"), ("check", found[5]["result"]), ("put_parameters", "failed")),
    ]
    first = found[0]
    assert first["made"] == made.headers["location"]
    assert (first["trace"], first["id"]) == (TRACE, made.headers["x-request-id"])
    assert first["client"].startswith("127.0.0.1:")
    assert found[2]["made"] == job
    assert not any(key in path.read_text() for key in KEYS.values())


def test_refused_keys_have_lines_of_a_bounded_number(anybody, path):
    anybody.post("/v1/graphs", json=GRAPH, headers=by("caller"))
    anybody.get("/v1/ops", headers=by("past"))
    for _ in range(2 * REFUSALS):
        assert anybody.get("/v1/ops", headers=bearer("unknown-key")).status_code == 401
    assert lines(path, 1, event="refused_scope")[0]["key"] == "caller"
    assert len(lines(path, 1, event="refused_expired")) == 1
    assert len(lines(path, REFUSALS - 2, event="refused_key")) == REFUSALS - 2
    assert "unknown-key" not in path.read_text()


def test_a_renamed_file_is_left_and_changed_keys_are_named(anybody, path, keys_file):
    rotated = path.rename(path.with_suffix(".1"))
    before = rotated.read_text()
    keys_file.write_text("\n".join([*LINES[:2], line_for("bob", "pullback_Of-bob-0123")]))
    wait_for_status(anybody, "pullback_Of-bob-0123", 200)
    assert lines(path, 1, event="read_keys")[0]["changed"] == ["bob", "past"]
    assert rotated.read_text() == before
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_full_disk_is_reported_once_and_counted(caplog):
    file = AuditFile(Path("/dev/full"))
    for number in range(3):
        file.write((b'{"event":"lost"}',))
        until = time.monotonic() + PATIENCE_S
        while file.dropped <= number:
            assert time.monotonic() < until
            time.sleep(0.01)
    os.close(file.descriptor)
    assert caplog.text.count("lines of the audit log in /dev/full are lost") == 1


def test_a_file_that_cannot_be_opened_stops_the_start(start, tmp_path):
    one = start(AUDIT=str(tmp_path / "none" / "audit"))
    assert one.wait() == 2
    assert one.log_with(f"pullback: PULLBACK_AUDIT: cannot write {tmp_path / 'none' / 'audit'}: No such file")
