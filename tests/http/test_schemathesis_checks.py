"""Our own checks of Schemathesis find mistakes that are planted in a small service, and nothing else."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.conftest import ROOT

CONFIG = Path(__file__).with_name("schemathesis.toml")
OURS = "refusals_are_beyond_schemas,events_match_their_schema"
JSON, LINES, EVENTS = "application/json", "application/x-ndjson", "text/event-stream"
SUMMARY = {"event": "summary", "pass": 1}


def document() -> dict:
    """Return a document with one operation, whose body is an object, and with the stream of events."""
    answer = {"description": "An answer."}
    body = {"content": {JSON: {"schema": {"type": "object"}}}}
    summary = {
        "type": "object",
        "properties": {"event": {"const": "summary"}, "pass": {"type": "integer"}},
        "required": ["event", "pass"],
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Planted", "version": "1"},
        "paths": {
            path: {"post": {"requestBody": body, "responses": {"200": answer, "422": answer}}}
            for path in ("/v1/ops/square/forward", "/v1/ops/{op}/forward", "/v1/checks")
        },
        "components": {"schemas": {"ChecksAnswer": summary}},
    }


def refusal(message: str, *loc: str, got: str = "the string") -> tuple[int, str, bytes]:
    return (
        422,
        "application/problem+json",
        json.dumps({"errors": [{"loc": loc, "message": message, "got": got}]}).encode(),
    )


@contextmanager
def serve(path: str, answer: tuple[int, str, bytes]) -> Iterator[str]:
    """Serve the document with one of its paths, which answers the same to each request."""
    described = document()
    described["paths"] = {path: described["paths"][path]}
    if "{op}" in path:
        name = {"name": "op", "in": "path", "required": True, "schema": {"enum": ["square"]}}
        described["paths"][path]["post"]["parameters"] = [name]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send(200, JSON, json.dumps(described).encode())

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send(*answer)

        def send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/openapi.json"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def lines(*events: dict) -> tuple[int, str, bytes]:
    return 200, LINES, b"".join(json.dumps(event).encode() + b"\n" for event in events)


def frames(name: str, event: dict) -> tuple[int, str, bytes]:
    return 200, EVENTS, f"event: {name}\ndata: {json.dumps(event)}\n\n".encode()


ONE, ANY, CHECKS = "/v1/ops/square/forward", "/v1/ops/{op}/forward", "/v1/checks"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("path", "answer", "found"),
    [
        (ONE, refusal("expected a number", "inputs", "x"), "a schema can say this"),
        (ONE, refusal("unknown field", "inputs"), "a schema can say this"),
        (ONE, refusal("unknown name", "inputs", "z"), "a schema can say this"),
        (ONE, refusal("expected a number", "inputs", got="3.0"), ""),
        (ONE, refusal("shapes do not match", "inputs"), ""),
        (ANY, refusal("expected a number", "inputs"), "a schema can say this"),
        (ANY, refusal("unknown name", "inputs", "z"), ""),
        (ANY, refusal("expected a number", "attrs", "scale"), ""),
        (CHECKS, lines(SUMMARY), ""),
        (CHECKS, lines({"event": "summary"}), "'pass' is a required property"),
        (CHECKS, lines(SUMMARY, {"event": "news"}), "'summary' was expected"),
        (CHECKS, frames("summary", SUMMARY), ""),
        (CHECKS, frames("report", SUMMARY), "events_match_their_schema|AssertionError|assert"),
    ],
)
def test_mistakes_are_found_and_nothing_else(tmp_path: Path, path: str, answer: tuple[int, str, bytes], found: str):
    with serve(path, answer) as url:
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", CONFIG, "run", url]
        done = subprocess.run(
            [*command, "--checks", OURS, "--phases", "fuzzing", "--mode", "positive", "--max-examples", "2"],
            check=False,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    assert done.returncode == (1 if found else 0), done.stdout[-5000:]
    assert any(words in done.stdout for words in found.split("|")), done.stdout[-5000:]
