"""Servers of this process that answer as the protocols say, or nonsense."""

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answers = Mapping[str, Any]
"""By path, what is answered: JSON, bytes, a status with JSON and perhaps headers, or a function that returns them.

A function takes the request's body.
"""


@contextmanager
def served(answers: Answers):
    """Serve answers on a free port, and yield the URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            found = answers.get(self.path, (404, {"detail": "Not Found"}))
            found = found(json.loads(body)) if callable(found) else found
            status, content, headers = (*found, {})[:3] if isinstance(found, tuple) else (200, found, {})
            content = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = answer

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def umbridge(**changes: Any) -> dict[str, Any]:
    """Return the answers of a model y = x² of two numbers, with changes by call."""
    usual: dict[str, Any] = {
        "Info": {"protocolVersion": 1.0, "models": ["square"]},
        "ModelInfo": {"support": {"Evaluate": True, "Gradient": True, "ApplyJacobian": False, "ApplyHessian": False}},
        "InputSizes": {"inputSizes": [2]},
        "OutputSizes": {"outputSizes": [2]},
        "Evaluate": lambda body: {"output": [[x**2 for x in body["input"][0]]]},
        "Gradient": lambda body: {"output": [2 * x * s for x, s in zip(body["input"][0], body["sens"], strict=True)]},
    }
    return {f"/{call}": answer for call, answer in {**usual, **changes}.items()}


def slowly(answer: Callable[[Any], Any], seconds: float) -> Callable[[Any], Any]:
    """Return an answer that takes this long."""

    def late(body: Any) -> Any:
        time.sleep(seconds)
        return answer(body)

    return late
