"""Behind a proxy that asks for a password, the explorer works with the one that the browser knows."""

import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
from conftest import PATIENCE_MS, wait_for_plot
from playwright.sync_api import Browser

PASSWORD = "Basic bWU6cGFzcw=="  # me:pass


@pytest.fixture
def proxy(url: str) -> Iterator[str]:
    """The address of a proxy of the service that wants a password."""

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers["Authorization"] != PASSWORD:
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="proxy"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            there = HTTPConnection(urlsplit(url).netloc)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            passed = ("Accept", "Content-Type", "Prefer")
            there.request(self.command, self.path, body, {n: self.headers[n] for n in passed if n in self.headers})
            answer = there.getresponse()
            text = answer.read()
            self.send_response(answer.status)
            for name in ("Content-Type", "Content-Security-Policy"):
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_the_password_of_a_proxy_is_sent_with_each_request(browser: Browser, proxy: str) -> None:
    context = browser.new_context(http_credentials={"username": "me", "password": "pass"})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"{proxy}/explore/square")
    wait_for_plot(page)
    context.close()
