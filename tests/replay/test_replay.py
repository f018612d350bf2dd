"""The comparison of two versions: what counts as a difference."""

import io
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from rich.console import Console

from tests.hostile.requests import Request
from tests.replay.__main__ import compare

QUIET = Console(file=io.StringIO())


class Version(BaseHTTPRequestHandler):
    """Answers as a version of the service: ids and times differ in each answer, other things by path and version."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Versioned)
        server.count += 1
        body = f'{{"seconds": {server.count}, "path": "{self.path}"}}'.encode()
        self.send_response(500 if (server.version, self.path) == (2, "/status") else 200)
        self.send_header("X-Request-Id", str(server.count))
        if (server.version, self.path) == (2, "/header"):
            self.send_header("Allow", "GET")
        if (server.version, self.path) == (2, "/third") and server.count % 3 == 0:
            body += b" "
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Versioned(ThreadingHTTPServer):
    version = 0
    count = 0


@pytest.fixture
def ports() -> Iterator[list[int]]:
    servers = [Versioned(("127.0.0.1", 0), Version) for _ in range(2)]
    for number, server in enumerate(servers, 1):
        server.version, server.count = number, number % 2 * 3
        threading.Thread(target=server.serve_forever, daemon=True).start()
    yield [server.server_port for server in servers]
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("path", "differs"), [("/same", False), ("/status", True), ("/header", True), ("/third", True)]
)
def test_versions_differ_in_status_headers_and_any_of_three_answers_but_not_in_ids_and_times(ports, path, differs):
    found = compare(ports, [Request("GET", path)], QUIET)
    assert [request.path for request, _ in found] == [path] * differs
