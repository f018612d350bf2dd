"""Wrong URLs, times, certificates and proxies: each error says what was expected, what came, and the cure."""

import math
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import pullback
from pullback import addresses
from tests.client.fake_servers import Response
from tests.client.raw_servers import OK
from tests.patience import PATIENCE_S

SENDS: list[Callable[[pullback.Client], object]] = [lambda client: client.ops(), lambda client: list(client.checks())]


@pytest.fixture(autouse=True)
def no_environment(monkeypatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def assert_fails(client_of: Callable[..., pullback.Client], url: str, kind: type[Exception], *words: str) -> None:
    with client_of(url, timeout=PATIENCE_S) as client:
        for send in SENDS:
            with pytest.raises(kind) as caught:
                send(client)
            message = str(caught.value)
            assert "\n" not in message
            assert [word for word in words if word not in message] == [], message


@pytest.mark.parametrize(
    "url",
    [
        "http://me:secret@x:8000/?a=1",
        "http://me:secret@x:8000?a=secret",
        "http://me:secret@x:8000/#secret",
        "http+unix://%2Frun%2Fpullback.sock?a=1",
        "http://me:secret@x:0",
        "http://me:secret@x:65536",
        "http://me:secret@x:-1",
        "http://me:secret@",
        "http://me:secret@a b/",
        "me:secret@x",
        "http://me:secret@x:y",
        "http://me:secret@.x",
        "http://me:secret@x/\udc80",
        "http://me:secret\udc80@x",
        b"http://me:secret@x",
    ],
)
@pytest.mark.parametrize("kind", [pullback.Client, pullback.AsyncClient])
def test_a_url_that_cannot_be_used(kind: type, url: object) -> None:
    with pytest.raises(pullback.BadArgument, match=r"expected a URL such as http://127\.0\.0\.1:8000") as caught:
        kind(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("seconds", [0, -1, math.nan, -math.inf, "1", True, [1]])
def test_a_time_that_is_none(seconds: object) -> None:
    for kind in (pullback.Client, pullback.AsyncClient):
        with pytest.raises(pullback.BadArgument, match="timeout: expected seconds above 0, or None for no limit, got"):
            kind(timeout=seconds)
    with pullback.Client() as client, pytest.raises(pullback.BadArgument, match="deadline: expected seconds above 0"):
        client.op("square").forward([1.0], deadline=seconds)
    with pullback.Client() as client, pytest.raises(pullback.BadArgument, match="deadline: expected seconds above 0"):
        list(client.checks(deadline=seconds))


@pytest.mark.parametrize("seconds", [math.inf, 1e9, 1e300, 10**400, np.float32(2.5), np.int64(3), 3_000_000, None])
def test_a_long_time_is_no_limit(client_of, raw_server, seconds: float | None) -> None:
    server = raw_server(OK)
    with client_of(server.url, timeout=seconds) as client:
        assert client.ops() == []
        for send in (lambda: client.op("x").forward({"x": 1}, deadline=seconds), lambda: list(client.checks())):
            with pytest.raises(pullback.NotPullback):
                send()
    has_deadline = seconds is not None and seconds < 10
    assert (b"Pullback-Deadline-Ms" in server.heads[1]) == has_deadline


def dead_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()[1]


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_dead_proxy_is_named(client_of, monkeypatch, scheme: str) -> None:
    port = dead_port()
    monkeypatch.setenv("ALL_PROXY", f"http://me:secret@127.0.0.1:{port}")
    words = (f"{scheme}://elsewhere.example", f"proxy http://127.0.0.1:{port}", "ALL_PROXY", "NO_PROXY")
    assert_fails(client_of, f"{scheme}://elsewhere.example", pullback.CannotConnect, *words)


def test_a_proxy_that_refuses_is_named(client_of, monkeypatch, raw_server) -> None:
    proxy = raw_server(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    words = ("https://elsewhere.example", f"through the proxy {proxy.url}", "407", "HTTPS_PROXY")
    assert_fails(client_of, "https://elsewhere.example", pullback.CannotConnect, *words)


def test_a_proxy_that_answers_itself_is_named(client_of, monkeypatch, fake_server) -> None:
    proxy = fake_server(Response(502, b"<html>", {"content-type": "text/html"}))
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    assert_fails(client_of, "http://elsewhere.example", pullback.NotPullback, "502", f"the proxy {proxy.url}")


@pytest.mark.parametrize("proxy", ["http://", "ftp://x:1", "socks5://x:1"])
def test_a_proxy_that_cannot_be_used(client_of, monkeypatch, proxy: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    words = ("HTTP_PROXY", "expected a URL such as", proxy)
    assert_fails(client_of, "http://elsewhere.example", pullback.BadArgument, *words)


def test_a_proxy_is_not_that_of_a_client_of_the_caller(monkeypatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example")
    assert addresses.address("http://x").proxy == "http://proxy.example"
    assert addresses.address("http://x", use_proxy=False).proxy is None
    monkeypatch.setenv("NO_PROXY", "x:80,y:8000")
    assert addresses.address("http://y:8000").proxy is None
    assert addresses.address("http://y:8001").proxy is not None


@pytest.mark.parametrize("content", [None, "", "no certificate"])
def test_a_wrong_file_of_certificates(client_of, monkeypatch, tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    words = ("SSL_CERT_FILE", "PEM", str(file), "unset")
    assert_fails(client_of, f"https://127.0.0.1:{dead_port()}", pullback.BadArgument, *words)


def test_a_wrong_file_of_certificates_does_not_matter_without_tls(client_of, monkeypatch, raw_server) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere.pem")
    with client_of(raw_server(OK).url) as client:
        assert client.ops() == []
        with pytest.raises(pullback.NotPullback):
            list(client.checks())


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command = ["openssl", *made, *name, "-keyout", key, "-out", cert]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


@pytest.fixture
def tls_port(certificate) -> Iterator[int]:
    """Return the port of a server with TLS that answers every request with a long body."""
    ops = b'{"ops": [' + b" " * 300_000 + b"]}"
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(ops), ops)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            try:
                with context.wrap_socket(connection, server_side=True) as secured:
                    while secured.recv(65536):
                        secured.sendall(answer)
            except OSError:
                connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(PATIENCE_S)


def test_tls(client_of, tls_port: int, certificate, monkeypatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with client_of(f"https://localhost:{tls_port}", timeout=PATIENCE_S) as client:
        assert [client.ops() for _ in range(3)] == [[]] * 3


def test_an_answer_before_the_end_of_a_large_body_over_tls(client_of, tls_port: int, certificate, monkeypatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    with client_of(f"https://localhost:{tls_port}", timeout=PATIENCE_S) as client, pytest.raises(pullback.NotPullback):
        client.op("square").forward({"x": np.ones(1 << 21)})


def test_a_certificate_that_is_not_trusted(client_of, tls_port: int) -> None:
    words = (f"https://localhost:{tls_port}", "certificate", "self-signed", "SSL_CERT_FILE")
    assert_fails(client_of, f"https://localhost:{tls_port}", pullback.CannotConnect, *words)


def test_a_certificate_for_another_name(client_of, tls_port: int, certificate, monkeypatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    words = ("certificate", "127.0.0.1", "host name")
    assert_fails(client_of, f"https://127.0.0.1:{tls_port}", pullback.CannotConnect, *words)


@pytest.mark.parametrize("pieces", [(b"HTTP/1.1 400 Bad Request\r\n\r\n",), (b"",)])
def test_a_server_without_tls(client_of, pieces: tuple[bytes, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(pieces[0])

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        words = ("no TLS with", url, "http://")
        try:
            assert_fails(client_of, url, pullback.CannotConnect, *words)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE_S)


def test_a_server_with_tls(client_of, tls_port: int) -> None:
    expected = pytest.raises(pullback.ConnectionLost, match="use https:// if it expects TLS")
    with client_of(f"http://127.0.0.1:{tls_port}", timeout=PATIENCE_S) as client, expected:
        client.ops()
