"""``pullback ipi`` without a service: what servers send that is wrong, addresses and species."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import pullback
from pullback.errors import BadAnswer
from pullback.ipi_driver import Species, drive, species
from pullback.ipi_socket import Channel, IpiAddress, ipi_address
from pullback.structures import Potential

INIT = b"INIT        " + struct.pack("<ii", 0, 1) + b" "
BATCH = b"INIT        " + struct.pack("<ii", 0, 20) + b" batch_size:99999999"


def posdata(count: int, positions: bytes = b"") -> bytes:
    return b"POSDATA     " + bytes(144) + struct.pack("<i", count) + positions


@pytest.fixture
def answered() -> Iterator[Callable[[bytes], str]]:
    """Return a function that sends bytes to a driver, and returns its error, with what it answered before."""
    with pullback.Client("http://127.0.0.1:9") as client:

        def work(data: bytes) -> str:
            ours, theirs = socket.socketpair()
            with ours, theirs:
                ours.sendall(data)
                ours.shutdown(socket.SHUT_WR)
                with pytest.raises(pullback.PullbackError) as error:
                    drive(Channel(theirs, "the i-PI server", 5), Potential(client.op("energy")), Species([18, 18]))
                theirs.close()
                return f"{error.value}; {ours.recv(1000)!r}"

        yield work


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the i-PI server closed the connection without EXIT; b''"),
        (b"STATUS      ", "closed the connection without EXIT; b'NEEDINIT    '"),
        (b"STATUS      " + INIT + b"STATUS      ", "b'NEEDINIT    READY       '"),
        (b"STAT", "closed the connection without EXIT"),
        (b"GET / HTTP/1", "expected a header of the protocol of i-PI, got 'GET / HTTP/1'"),
        (b"GETFORCE    ", "expected a header of the protocol of i-PI, got 'GETFORCE'"),
        (INIT + posdata(3, bytes(72)), "expected the 2 atoms of --species, got 3"),
        (INIT + posdata(2, bytes(47)), "closed the connection without EXIT"),
        (INIT + posdata(0), "expected atoms, and at most"),
        (INIT + posdata(-2), "got 1 structures of -2"),
        (INIT + posdata(2**31 - 1), "got 1 structures of 2147483647"),
        (BATCH + b"POSDATA     " + struct.pack("<i", 2), "got 99999999 structures of 2"),
        (b"INIT        " + struct.pack("<ii", 0, -1), "expected a text of at most"),
        (b"INIT        " + struct.pack("<ii", 0, 2**31 - 1), "expected a text of at most"),
    ],
)
def test_bad_messages_end_the_driver(answered: Callable[[bytes], str], data: bytes, message: str) -> None:
    assert message in answered(data)


def test_a_message_that_stalls_ends_the_driver() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pullback.Client("http://127.0.0.1:9") as client:
        ours.sendall(INIT[:15])
        with pytest.raises(pullback.TimedOut, match=r"expected a whole message in 0\.1 s, got 3 of 4 bytes"):
            drive(Channel(theirs, "the i-PI server", 0.1), Potential(client.op("energy")), Species([18]))


def test_exit_ends_it_and_a_server_may_be_late(tmp_path: Path) -> None:
    address = ipi_address(f"unix:{tmp_path / 'late'}")
    with pytest.raises(pullback.CannotConnect, match=r"no i-PI server at unix:.*late: No such file"):
        address.connect(0.2)
    ready = threading.Event()

    def serve() -> None:
        ready.wait(20)
        with address.listen() as listener, listener.accept()[0] as connection:
            connection.sendall(b"EXIT        ")

    server = threading.Thread(target=serve)
    server.start()
    threading.Timer(0.3, ready.set).start()
    with address.connect(20) as connection, pullback.Client("http://127.0.0.1:9") as client:
        assert drive(Channel(connection, "the i-PI server", 5), Potential(client.op("energy")), Species([18])) == 0
    server.join(20)
    # The file of a server that has died is there, and no server.
    with pytest.raises(pullback.CannotConnect, match="Connection refused"):
        address.connect(0.2)


def test_an_address_that_no_time_cures_is_no_wait() -> None:
    with pytest.raises(pullback.CannotConnect, match=r"no i-PI server at no-such-host\.invalid:31415"):
        IpiAddress("", "no-such-host.invalid", 31415).connect(600)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("unix:argon", IpiAddress("/tmp/ipi_argon")),
        ("unix:/run/argon", IpiAddress("/run/argon")),
        ("localhost:31415", IpiAddress("", "localhost", 31415)),
        ("[::1]:31415", IpiAddress("", "::1", 31415)),
    ],
)
def test_addresses(text: str, address: IpiAddress) -> None:
    assert ipi_address(text) == address
    assert str(address) == text


def test_species(tmp_path: Path) -> None:
    (tmp_path / "a.xyz").write_text("3\n# CELL(abcABC): 9 9 9 90 90 90\nAr 0 0 0\nKr 1 0 0\nAr 0 1 0\n")
    assert species("Ar").of(3).tolist() == [18, 18, 18]
    assert species("Ar2Kr").of(3).tolist() == [18, 18, 36]
    assert species(f"@{tmp_path / 'a.xyz'}").of(3).tolist() == [18, 36, 18]
    assert species("Og").numbers == [118]
    for text in ("Ar2Kr", "Ar1", f"@{tmp_path / 'a.xyz'}"):
        with pytest.raises(BadAnswer, match="atoms of --species, got 2"):
            species(text).of(2)


@pytest.mark.parametrize("text", ["", "ar", "Xx", "Ar0", "Ar 2", "18", "Ar9999999Kr9999999", "@no.xyz", "Ar?"])
def test_species_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(pullback.BadArgument, match="--species"):
        species(text)


@pytest.mark.parametrize("text", ["", "x\n\n", "2\n\nAr 0 0 0\n", "0\n\n", "1\n\nAr\n", "-1\n\nAr 0 0 0\n", "\xff"])
def test_files_that_are_none_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.xyz").write_bytes(text.encode("latin-1"))
    with pytest.raises(pullback.BadArgument, match="cannot read the atoms of"):
        species(f"@{tmp_path / 'a.xyz'}")


def test_a_driver_that_closes_resets_no_connection() -> None:
    """Of i-PI, which sends GETFORCE with the positions, a reset would end the thread that serves all drivers."""
    ours, theirs = socket.socketpair()
    with ours:
        ours.sendall(b"GETFORCE    ")
        Channel(theirs, "peer", 5).close()
        assert ours.recv(100) == b""


def test_numbers_are_little_endian() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Channel(theirs, "peer", 5).send("READY", -2, np.array([1.5]), b"x")
        assert ours.recv(100) == b"READY       " + struct.pack("<id", -2, 1.5) + b"x"
