"""A server that passes requests on to a service, records their headers, and can hold them back."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

LIMIT_S = 60
PASSED_ON = ("accept", "content-type", "pullback-deadline-ms")


class RecordingProxy(ThreadingHTTPServer):
    """The proxy of the service at ``target``."""

    daemon_threads = False

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.target = urlsplit(target).netloc
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.is_open = threading.Event()
        self.is_open.set()
        self.arrived = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def new(self, name: str) -> list[str | None]:
        """Return a header of each POST since the last time."""
        found, self.requests = self.requests, []
        return [headers.get(name.lower()) for method, _, headers in found if method == "POST"]


class Handler(BaseHTTPRequestHandler):
    """Passes requests on, one for each connection."""

    server: RecordingProxy

    def respond(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        self.server.requests.append((self.command, self.path, headers))
        self.server.arrived.set()
        self.server.is_open.wait(LIMIT_S)
        upstream = http.client.HTTPConnection(self.server.target, timeout=LIMIT_S)
        try:
            passed_on = {name: headers[name] for name in PASSED_ON if name in headers}
            upstream.request(self.command, self.path, body or None, passed_on)
            response = upstream.getresponse()
            self._answer(response.status, response.headers["content-type"], response.read())
        finally:
            upstream.close()

    do_GET = do_POST = respond

    def _answer(self, status: int, kind: str, content: bytes) -> None:
        try:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except ConnectionError:
            pass  # the client did not wait

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@contextmanager
def recording_proxy(target: str) -> Iterator[RecordingProxy]:
    """Start a proxy, and stop it at the end."""
    proxy = RecordingProxy(target)
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield proxy
    finally:
        proxy.is_open.set()
        proxy.shutdown()
        proxy.server_close()
        thread.join()
