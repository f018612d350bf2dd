"""Fake servers: other software, or a Pullback that fails."""

import contextlib
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Response:
    """A response; it may be cut short, or held open."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    is_cut: bool = False
    is_held: bool = False


def json_response(document: Any, status: int = 200, kind: str = "application/json", **headers: str) -> Response:
    return Response(status, json.dumps(document).encode(), {"content-type": kind, **headers})


def problem_response(status: int, title: str, **headers: str) -> Response:
    name = title.lower().replace(" ", "-")
    document = {
        "type": f"urn:pullback:problem:{name}",
        "title": title,
        "status": status,
        "detail": "the reason",
        "instance": "/",
        "errors": [],
    }
    return json_response(document, status, "application/problem+json", **headers)


def event_stream(*events: dict[str, Any], is_cut: bool = False, is_held: bool = False) -> Response:
    body = b"".join(json.dumps(event).encode() + b"\n" for event in events)
    return Response(200, body, {"content-type": "application/x-ndjson"}, is_cut, is_held)


class FakeServer(ThreadingHTTPServer):
    """A server with prepared responses; ``requests`` has the method, path and body of each request."""

    daemon_threads = False

    def __init__(self, responses: Sequence[Response]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.responses = list(responses)
        self.requests: list[tuple[str, str, Any]] = []
        self.released = threading.Event()
        self.got_request = threading.Event()
        self.finished = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def stop(self) -> None:
        self.released.set()
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    """Sends the next response."""

    server: FakeServer

    def respond(self) -> None:
        length = int(self.headers.get("content-length", 0))
        body = json.loads(self.rfile.read(length)) if length else None
        server = self.server
        server.requests.append((self.command, self.path, body))
        server.got_request.set()
        response = server.responses.pop(0) if len(server.responses) > 1 else server.responses[0]
        if response.is_held and not response.body:
            server.released.wait()
            return
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        # A response that is cut short or held announces a byte more than it has.
        self.send_header("content-length", str(len(response.body) + (response.is_cut or response.is_held)))
        with contextlib.suppress(ConnectionError):
            self.end_headers()
            self.wfile.write(response.body)
            if response.is_held:
                self.rfile.read(1)  # returns when the client closes the connection
        self.server.finished.set()

    do_GET = do_POST = do_DELETE = respond

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""
