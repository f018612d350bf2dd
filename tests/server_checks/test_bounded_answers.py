"""Other people's servers: each answer is bounded as a whole, in time, bytes and counts, and a fault is the server's."""

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Generator
from typing import Any

import pytest

from pullback.cli import main
from pullback.errors import BadAnswer, TimedOut
from pullback.gradcheck.function import MAX_SLOTS
from pullback.gradcheck.of.json_server import JsonServer
from tests.client.raw_servers import RawServer
from tests.server_checks.http_servers import served, umbridge

TIMEOUT_S, DRIP_S = 1.0, 0.2
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n"
# What a server sends now and then, for ever, after what it sends first.
DRIPS = {
    "a byte of the head": (b"HTTP/1.1 200 O", b"K"),
    "a byte of a header": (b"HTTP/1.1 200 OK\r\nx: ", b"y"),
    "an interim answer": (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    "a byte of the body": (HEAD, b" "),
    "a chunk": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
}


@contextlib.contextmanager
def dripping(first: bytes, drip: bytes) -> Generator[str]:
    """Serve one request, without an end, and yield the URL."""
    over = threading.Event()

    def serve() -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(first)
                while not over.wait(DRIP_S):
                    connection.sendall(drip)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            over.set()
            thread.join()


@pytest.mark.parametrize("drips", DRIPS.values(), ids=DRIPS)
def test_an_answer_that_drips_ends_in_time(drips: tuple[bytes, bytes]) -> None:
    with dripping(*drips) as url, JsonServer(url, TIMEOUT_S) as server:
        began = time.monotonic()
        with pytest.raises(TimedOut, match=r"no answer within 1 s: allow more with --timeout"):
            server.get("/Info")
        assert TIMEOUT_S / 2 < time.monotonic() - began < 10 * TIMEOUT_S


@pytest.mark.parametrize(
    "body", [b"[" + b"{}," * 2_000_000 + b"1]", b"[" * 2_000_000, b"[" + b"0," * 6_000_000 + b"0]"]
)
def test_an_answer_has_a_bounded_number_of_values(body: bytes) -> None:
    expected = "expected at most 5242880 values, in 1048576 lists and objects, got more"
    with served({"/Info": body}) as url, JsonServer(url, 60.0) as server, pytest.raises(BadAnswer, match=expected):
        server.get("/Info")


@pytest.mark.parametrize("sizes", [[1] * 1_000_000, [1] * (MAX_SLOTS + 1), [1 << 22, 1]])
def test_a_model_has_a_bounded_number_of_inputs(sizes: list[int], monkeypatch: Any, capfd: Any) -> None:
    with served(umbridge(InputSizes={"inputSizes": sizes})) as url:
        monkeypatch.setattr(sys, "argv", ["pullback", "check", f"umbridge+{url}/square"])
        assert main() == 2
    out = "".join(capfd.readouterr())
    assert "expected " in out
    assert "Traceback" not in out
    assert len(out) < 5000


@pytest.mark.parametrize(
    ("output", "fault"),
    [([[float("nan"), 1.0]], "expected finite values"), ([[1.0]], "got shape [1]"), ([["a", 1.0]], "expected numbers")],
)
def test_a_fault_of_the_server_is_called_so(output: Any, fault: str, monkeypatch: Any, capfd: Any) -> None:
    with served(umbridge(Evaluate={"output": output})) as url:
        monkeypatch.setattr(sys, "argv", ["pullback", "check", f"umbridge+{url}/square"])
        assert main() == 2
    out = " ".join("".join(capfd.readouterr()).split())
    assert fault in out
    assert "fault of the checker" not in out
    assert "out of time" not in out


def test_a_server_gets_the_credentials_of_its_url_and_no_header_of_pullback() -> None:
    there = RawServer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    with contextlib.ExitStack() as stack, JsonServer(there.url.replace("//", "//me:s%20t@"), TIMEOUT_S) as server:
        stack.callback(there.stop)
        assert [server.get("/Info"), server.post("/Evaluate", {})] == [{}, {}]
    assert all(b"\r\nAuthorization: Basic bWU6cyB0\r\n" in head for head in there.heads)
    assert not any(b"Pullback-" in head for head in there.heads)
