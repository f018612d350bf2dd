"""A driver and a server of i-PI's socket protocol, byte by byte, without the code of Pullback."""

import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import numpy as np

from pullback.dtypes import Array

BOHR, HARTREE = 0.529177210903, 27.211386245988
Compute = Callable[[Array, Array], tuple[float, Array, Array]]


def read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def numbers(connection: socket.socket, *shape: int) -> Array:
    return np.frombuffer(read(connection, 8 * int(np.prod(shape)))).reshape(shape)


def integer(connection: socket.socket) -> int:
    return struct.unpack("<i", read(connection, 4))[0]


def answer(connection: socket.socket, compute: Compute, send: Callable[[bytes], None]) -> None:
    """Drive: ``compute`` returns energy, forces and virial of h, whose columns are vectors, and positions."""
    is_ready, found = False, b""
    while (header := read(connection, 12)) != b"EXIT        ":
        if header == b"STATUS      ":
            send(b"HAVEDATA    " if found else b"READY       " if is_ready else b"NEEDINIT    ")
        elif header == b"INIT        ":
            integer(connection)
            read(connection, integer(connection))
            is_ready = True
        elif header == b"POSDATA     ":
            h, inverse = numbers(connection, 3, 3), numbers(connection, 3, 3)
            np.testing.assert_allclose(h @ inverse, np.eye(3), atol=1e-12)
            assert not np.tril(h, -1).any(), "i-PI's cells are upper triangles"
            energy, forces, virial = compute(h, numbers(connection, integer(connection), 3))
            found = struct.pack("<di", energy, len(forces)) + forces.tobytes() + virial.tobytes() + struct.pack("<i", 0)
        else:
            assert header == b"GETFORCE    "
            send(b"FORCEREADY  " + found)
            found = b""


@contextmanager
def driver(path: str, work: Callable[[socket.socket], None]) -> Iterator[None]:
    """Connect to a Unix socket as soon as it is there, on a thread, and ``work``."""

    def run() -> None:
        with socket.socket(socket.AF_UNIX) as connection, suppress(EOFError, ConnectionError):
            for _ in range(200):
                try:
                    connection.connect(path)
                    break
                except OSError:
                    time.sleep(0.05)
            work(connection)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(run)
        yield
        done.result(20)


def ask(
    connection: socket.socket, cells: Sequence[Array], positions: Sequence[Array]
) -> list[tuple[float, Array, Array]]:
    """Ask a driver, as i-PI does, for a structure or a batch; return energies, forces and virials, in atomic units."""
    batch, count = len(cells), len(positions[0])
    text = f" batch_size:{batch}".encode() if batch > 1 else b" "
    for sent, expected in (
        (b"STATUS      ", b"NEEDINIT    "),
        (b"INIT        " + struct.pack("<ii", 0, len(text)) + text, b""),
        (b"STATUS      ", b"READY       "),
    ):
        connection.sendall(sent)
        assert read(connection, len(expected)) == expected
    blocks = [h.T.tobytes() + np.linalg.pinv(h.T).tobytes() for h in cells]
    places = np.stack(positions).tobytes()
    one, some = blocks[0] + struct.pack("<i", count) + places, struct.pack("<i", count) + b"".join(blocks) + places
    connection.sendall(b"POSDATA     " + (some if batch > 1 else one) + b"GETFORCE    ")
    assert read(connection, 12) == b"FORCEREADY  "
    energies = numbers(connection, batch)
    assert integer(connection) == count
    forces, virials = numbers(connection, batch, count, 3), numbers(connection, batch, 3, 3)
    for _ in range(batch):
        assert read(connection, integer(connection)) == b""
    connection.sendall(b"STATUS      ")
    assert read(connection, 12) == b"READY       "
    return list(zip(energies.tolist(), forces, virials, strict=True))
