"""A service on a Unix socket, for programs on the same machine."""

import asyncio
import socket
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

import pullback
from app.http.listener import identity_of, listen, release
from tests.patience import PATIENCE_S


@pytest.fixture
def path(tmp_path: Path) -> Path:
    # The kernel limits such a path to 107 bytes, and those of pytest are long.
    return Path(f"/tmp/pullback-{tmp_path.parent.name[-20:]}-{tmp_path.name[-20:]}.sock")


def test_requests_from_the_socket_to_the_end(start, path: Path):
    one = start(HOST=f"unix:{path}").wait_until_ready()
    assert one.url == f"http+unix://{quote(str(path), safe='')}"
    assert one.line() == f"Try: curl -s --unix-socket {path} http://localhost/v1/ops/log1pexp/gradients " + (
        '-H \'Content-Type: application/json\' -d \'{"inputs":{"x":[0,100]},"order":2}\'\n'
    )
    with pullback.Client(one.url, timeout=PATIENCE_S) as client:
        assert client.op("square").vjp(3.0).gradients["x"] == 6
        assert list(client.checks(["square"], checks=["contract"]))[-1].verdict == "pass"

    async def run() -> float:
        async with pullback.AsyncClient(one.url, timeout=PATIENCE_S) as client:
            return (await client.op("square").vjp(3.0)).gradients["x"].item()

    assert asyncio.run(run()) == 6
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=PATIENCE_S) as client:
        assert client.get("http://localhost/v1/ops").status_code == 200
        assert client.get("http://elsewhere.example/v1/ops").status_code == 403
    one.process.terminate()
    assert one.wait() == 0
    assert not path.exists()
    assert "client=-:0" in one.log()


def test_the_socket_of_a_process_that_was_killed_is_replaced(path: Path):
    abandoned = listen(f"unix:{path}", 0)
    abandoned.listen()
    abandoned.close()
    assert path.is_socket()
    with listen(f"unix:{path}", 0) as listener:
        listener.listen()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(str(path))
    release(f"unix:{path}", identity_of(f"unix:{path}"))
    assert not path.exists()


def test_a_service_that_ends_leaves_the_socket_of_its_successor(path: Path):
    host = f"unix:{path}"
    first = listen(host, 0)
    identity = identity_of(host)
    first.close()
    with listen(host, 0) as second:
        second.listen()
        release(host, identity)
        assert path.is_socket()
        release(host, identity_of(host))
        assert not path.exists()


def test_what_others_use_is_not_replaced(path: Path, tmp_path: Path):
    with listen(f"unix:{path}", 0) as listener:
        listener.listen()
        with pytest.raises(OSError, match="in use"):
            listen(f"unix:{path}", 0)
    release(f"unix:{path}", identity_of(f"unix:{path}"))
    file = Path(f"{path}.txt")
    file.write_text("mine")
    try:
        with pytest.raises(OSError, match="in use"):
            listen(f"unix:{file}", 0)
        assert file.read_text() == "mine"
    finally:
        file.unlink()


def test_a_path_that_cannot_be(start, tmp_path: Path):
    one = start(HOST=f"unix:{tmp_path}/no/such/folder/x")
    assert one.wait() == 1
    assert f"pullback: cannot listen on unix:{tmp_path}/no/such/folder/x (PULLBACK_HOST, PULLBACK_PORT)" in one.log()


@pytest.mark.parametrize("url", ["http+unix://", "http+unix:///run/x", "https+unix://%2Fx", "unix:/x"])
def test_an_invalid_url_of_a_socket(url: str):
    with pytest.raises(pullback.BadArgument, match=r"http\+unix://%2Frun%2Fpullback\.sock"):
        pullback.Client(url)


def test_the_url_of_a_socket_may_have_a_path():
    address = pullback.addresses.address("http+unix://%2Frun%2Fa%20b.sock/under/")
    assert address.socket_path == "/run/a b.sock"
    assert str(address.location) == "http://localhost/under"
    assert address.public_url == address.url == "http+unix://%2Frun%2Fa%20b.sock/under"
