"""A service on a Unix socket, for programs on the same machine."""

import asyncio
import os
import socket
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

import pullback
from app.http.listener import identity_of, listen, release, url_of
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
    assert one.log_with("client=-:0")


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
        with pytest.raises(OSError, match="a file that is none"):
            listen(f"unix:{file}", 0)
        assert file.read_text() == "mine"
    finally:
        file.unlink()


IMPOSSIBLE = {
    "unix:": "expected unix: and a path, got no path",
    "unix:@name": "got the name of an abstract socket, which every user of the machine may open; for a file of this "
    "name, write unix:./@name",
    "unix:{folder}/no/such/x": "No such file or directory",
    "unix:{folder}": "expected a new path, or that of a socket, got a file that is none",
    "unix:{folder}/file": "expected a new path, or that of a socket, got a file that is none",
    "unix:{folder}/file/x": "Not a directory",
    "unix:{folder}/dangling": "expected a new path, or that of a socket, got a file that is none",
    "unix:{folder}/" + "x" * 107: "expected a path of at most 107 bytes, got ",
}


@pytest.mark.parametrize("host", IMPOSSIBLE)
def test_a_path_that_cannot_be_is_one_line(host: str, start, tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to("nothing")
    actual = host.format(folder=tmp_path)
    one = start(HOST=actual)
    assert one.wait() == 1
    assert one.log().startswith(f"pullback: cannot listen on {actual} (PULLBACK_HOST): ")
    assert one.log_with(IMPOSSIBLE[host])
    assert one.log().count("\n") == 1
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("host", ["unix:", "unix:@name"])
def test_no_socket_is_without_a_file(host: str):
    """An abstract socket has no permissions: every user of the machine could open it."""
    with pytest.raises(OSError, match="expected unix: and a path"):
        listen(host, 0)


@pytest.mark.parametrize("host", ["a..b", "." * 300, "x" * 64 + ".example"])
def test_what_is_no_host_name_is_an_error_of_the_system(host: str):
    with pytest.raises(OSError, match="expected a host name or an IP address"):
        listen(host, 0)


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o750), (0o077, 0o700), (0o000, 0o770), (0o002, 0o770)])
def test_only_the_user_may_connect_and_the_group_if_the_umask_says_so(umask: int, mode: int, path: Path):
    """To connect needs the permission to write."""
    before = os.umask(umask)
    try:
        with listen(f"unix:{path}", 0):
            assert path.stat().st_mode & 0o777 == mode
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
        path.unlink(missing_ok=True)


def test_a_relative_path_is_that_of_the_folder_where_the_service_starts(path: Path, monkeypatch):
    monkeypatch.chdir(path.parent)
    host = f"unix:{path.name}"
    with listen(host, 0) as listener:
        assert url_of(listener) == f"http+unix://{quote(str(path), safe='')}"
        release(host, identity_of(host))
    assert not path.exists()


@pytest.mark.parametrize("url", ["http+unix://", "http+unix:///run/x", "https+unix://%2Fx", "unix:/x"])
def test_an_invalid_url_of_a_socket(url: str):
    with pytest.raises(pullback.BadArgument, match=r"http\+unix://%2Frun%2Fpullback\.sock"):
        pullback.Client(url)


def test_the_url_of_a_socket_may_have_a_path():
    address = pullback.addresses.address("http+unix://%2Frun%2Fa%20b.sock/under/")
    assert address.socket_path == "/run/a b.sock"
    assert str(address.location) == "http://localhost/under"
    assert address.public_url == address.url == "http+unix://%2Frun%2Fa%20b.sock/under"
