"""Servers that are no Pullback, or not a healthy one."""

import contextlib
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    """One answer; it may be cut short, or never come."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    is_cut: bool = False
    is_held: bool = False


def of_json(document: Any, status: int = 200, kind: str = "application/json", **headers: str) -> Answer:
    return Answer(status, json.dumps(document).encode(), {"content-type": kind, **headers})


def of_problem(status: int, title: str, **headers: str) -> Answer:
    name = title.lower().replace(" ", "-")
    document = {
        "type": f"urn:pullback:problem:{name}",
        "title": title,
        "status": status,
        "detail": "so it is",
        "instance": "/",
        "errors": [],
    }
    return of_json(document, status, "application/problem+json", **headers)


def of_events(*events: dict[str, Any], is_cut: bool = False, is_held: bool = False) -> Answer:
    body = b"".join(json.dumps(event).encode() + b"\n" for event in events)
    return Answer(200, body, {"content-type": "application/x-ndjson"}, is_cut, is_held)


class Strange(ThreadingHTTPServer):
    """A server with prepared answers; ``requests`` are those that came: method, path and body."""

    daemon_threads = False

    def __init__(self, answers: Sequence[Answer]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = list(answers)
        self.requests: list[tuple[str, str, Any]] = []
        self.released = threading.Event()
        self.came = threading.Event()
        self.left = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def stop(self) -> None:
        self.released.set()
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    """Gives the next answer."""

    server: Strange

    def answer(self) -> None:
        length = int(self.headers.get("content-length", 0))
        body = json.loads(self.rfile.read(length)) if length else None
        server = self.server
        server.requests.append((self.command, self.path, body))
        server.came.set()
        answer = server.answers.pop(0) if len(server.answers) > 1 else server.answers[0]
        if answer.is_held and not answer.body:
            server.released.wait()
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        # More is promised than comes, where it is cut short.
        self.send_header("content-length", str(len(answer.body) + (answer.is_cut or answer.is_held)))
        with contextlib.suppress(ConnectionError):
            self.end_headers()
            self.wfile.write(answer.body)
            if answer.is_held:
                self.rfile.read(1)  # there is nothing to read: this ends when the client closes the connection
        self.server.left.set()

    do_GET = do_POST = answer

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
